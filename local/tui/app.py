"""The REPL: composition, keys, and the way of things between session and screen."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from typing import ClassVar
from uuid import uuid4

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from ccb.tunnel.errors import CcbError
from ccb.tunnel.login import Prompts
from ccb.tunnel.plain_text import neutralise

from ..client import ControlError, LinkChange, LinkState, Received, SessionClient
from ..exit_codes import ExitCode
from ..interrupts import Interrupts
from ..messages import ControlCancelRequest, ControlRequest, Result, parse_message
from ..prompts import TerminalPrompts
from .approval import GRACE_S, ApprovalCard
from .blocks import Level, TextBlock
from .commands import help_markdown, parse_command
from .composer import Composer
from .info import ReplInfo
from .look import one_line
from .replies import Replies
from .status import Facts, StatusLine, used_text
from .story import Story
from .themes import DARK, LIGHT, fitting_theme
from .transcript import Transcript

log = logging.getLogger(__name__)

_TICK_S = 0.1
_QUIT_WINDOW_S = 2.0
_HINT_S = 3.0
_TALL = 16
_MODES = ("default", "acceptEdits", "plan")


class Repl(App[int]):
    """One attached session on the screen. Ends with exit code 0 when the person leaves."""

    TITLE = "ccb"
    CSS = """
    Screen { layout: vertical; background: $background; overflow: hidden; }
    .-short ApprovalCard, .-short ApprovalCard:focus, .-short ApprovalCard:focus-within {
        border: none; border-top: heavy $warning;
    }
    .-short ApprovalCard .reason { max-height: 1; }
    .-short Composer, .-short Composer:focus { border: none; min-height: 1; max-height: 3; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "interrupt", "Interrupt", show=False, id="interrupt"),
        Binding("ctrl+c", "ladder", "Clear, interrupt, quit", show=False, priority=True, id="ladder"),
        Binding("ctrl+d", "leave", "Quit", show=False, priority=True, id="leave"),
        Binding("shift+tab", "next_mode", "Mode", show=False, priority=True, id="mode"),
        Binding("alt+a", "to_approval", "Approval", show=False, priority=True, id="approval"),
        Binding("tab", "toggle_approval", "Approval", show=False, priority=True, id="approval-tab"),
        Binding("ctrl+o", "details", "Details", show=False, priority=True, id="details"),
        Binding("pageup", "page(-1)", "Up", show=False, priority=True, id="page-up"),
        Binding("pagedown", "page(1)", "Down", show=False, priority=True, id="page-down"),
        Binding("f1", "help", "Help", show=False, priority=True, id="help"),
    ]

    def __init__(self, client: SessionClient, info: ReplInfo, first_prompt: str | None = None) -> None:
        super().__init__()
        self.VERTICAL_BREAKPOINTS = [(0, "-short"), (_TALL, "-tall")]
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        self.theme = fitting_theme(os.environ)
        self._client = client
        self._where = f"{one_line(info.host)}:{one_line(info.path)}"
        self._info = info
        self._first_prompt = first_prompt
        self.transcript = Transcript(info.path.rstrip("/"))
        self.composer = Composer()
        self._status = StatusLine()
        self.story = Story(self.transcript, model=info.model, mode=info.mode)
        self._questions: deque[ControlRequest] = deque()
        self.card: ApprovalCard | None = None
        self._link = client.state
        self._link_reason = ""
        self._busy_since: float | None = None
        self._turn = 0
        self._card_came = 0.0
        self._quit_asked = 0.0
        self._hint = ""
        self._hint_until = 0.0
        self._focused = True

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self.composer
        yield self._status

    def on_mount(self) -> None:
        self._set_window_title(f"ccb {self._where}")
        self.composer.focus()
        host = one_line(self._info.host)
        self.story.notice(
            f"ccb {self._info.version}  {self._where}\nThe agent works on {host}. F1 or /help shows the keys.",
            Level.DIM,
        )
        for note in self._client.hello.notes:
            self.story.notice(f"On the host: {one_line(note)}", Level.DIM)
        self.set_interval(_TICK_S, self._tick)
        self._listen()
        if self._first_prompt:
            self._send(self._first_prompt)

    def _set_window_title(self, title: str) -> None:
        """Name the terminal's window; the old name comes back at the end (xterm's title stack)."""
        self.title = title
        if self._driver is not None and not self.is_headless:
            self._driver.write(f"\x1b[22;2t\x1b]2;{title}\x07")

    def on_unmount(self) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write("\x1b]2;\x07\x1b[23;2t")

    @work(exit_on_error=True)
    async def _listen(self) -> None:
        """Show what the session says, to its end."""
        try:
            async for event in self._client.events():
                if isinstance(event, LinkChange):
                    self._link, self._link_reason = event.state, event.reason
                elif isinstance(event, Received):
                    self._received(event)
        except CcbError as error:
            if self._link is not LinkState.FENCED:
                self._link, self._link_reason = LinkState.LOST, error.what
            self._end(error)
        else:
            self._link = LinkState.CLOSED
            self._end(None)

    def _end(self, error: CcbError | None) -> None:
        self.story.ended()
        if error is not None:
            self._show_error(error)
        self.story.notice("The session has ended here. Ctrl+D leaves.", Level.WARNING)
        self._questions.clear()
        self.call_later(self._next_question)

    def _show_error(self, error: CcbError | ControlError) -> None:
        parts = (error.what, error.evidence, error.do) if isinstance(error, CcbError) else (str(error),)
        self.story.notice("\n".join(neutralise(part) for part in parts if part), Level.ERROR)

    def _received(self, event: Received) -> None:
        if event.kind not in ("message", "progress"):
            self.story.fact(event.kind, event.body)
            return
        message = parse_message(event.body)
        if isinstance(message, ControlRequest):
            if message.request.subtype == "can_use_tool":
                self._questions.append(message)
                self._ring()
                self.call_later(self._next_question)
        elif isinstance(message, ControlCancelRequest):
            self._withdraw(message.request_id)
        else:
            self.story.message(message)
            if isinstance(message, Result):
                self._ring()

    def _ring(self) -> None:
        if not self._focused:
            self.bell()

    async def _next_question(self) -> None:
        """Show the card of the first open question, or none."""
        wanted = self._questions[0] if self._questions else None
        if self.card is not None and self.card.request is not wanted:
            card, self.card = self.card, None
            had_focus = card.has_focus_within
            await card.remove()
            if had_focus:
                self.composer.focus()
        if wanted is not None and self.card is None:
            self.composer.rest()  # the key that answered the last card must not answer this one
            self.card = ApprovalCard(wanted, self._where, self.transcript.look())
            await self.mount(self.card, before=self.composer)
        if self.card is not None:
            self.card.more_waiting(len(self._questions) - 1)

    def _withdraw(self, request_id: str) -> None:
        self._questions = deque(each for each in self._questions if each.request_id != request_id)
        self.call_later(self._next_question)

    def _tick(self) -> None:
        now = time.monotonic()
        if self.story.running and (self._busy_since is None or self._turn != self.story.turns):
            self._busy_since, self._turn = now, self.story.turns
        elif not self.story.running:
            self._busy_since = None
        self.transcript.tick()
        composer = self.composer
        if (
            self.card is not None
            and self.focused is composer
            and not composer.text
            and composer.quiet_for() > GRACE_S
            and not self.screen.selections
        ):
            self.card.focus()
            self._card_came = now
        if self._quit_asked and now - self._quit_asked > _QUIT_WINDOW_S:
            self._quit_asked = 0.0
        if now > self._hint_until:
            self._hint = ""
        self._show_status()

    def hint(self, text: str, seconds: float = _HINT_S) -> None:
        """Say something in the status line for a while."""
        self._hint, self._hint_until = text, time.monotonic() + seconds
        self._show_status()

    def _show_status(self) -> None:
        busy = time.monotonic() - self._busy_since if self._busy_since is not None else None
        hint = self._hint
        if not hint and self.card is not None and not self.card.has_focus_within:
            hint = "approval waits: Tab"
        elif not hint and self.transcript.below > 1:
            hint = "↓ more below"
        facts = Facts(
            self._where, self.story.model, self.story.mode, self._link, self._link_reason, self.story.totals, busy, hint
        )
        self._status.show(facts, self.transcript.look())

    def on_resize(self) -> None:
        if self.card is not None:
            self.card.call_after_refresh(self.card.fit)

    def on_app_focus(self) -> None:
        self._focused = True

    def on_app_blur(self) -> None:
        self._focused = False

    def on_text_selected(self) -> None:
        """What is selected with the mouse is copied at once: the terminal's own selection does not reach here."""
        text = self.screen.get_selected_text()
        if text:
            self.copy_to_clipboard(text)
            self.hint("copied")

    def on_composer_sent(self, event: Composer.Sent) -> None:
        typed = parse_command(event.text)
        if typed is not None:
            self.run_worker(Replies(self, self._client, self._info, self._where).answer(typed))
        else:
            self._send(event.text)

    @work
    async def _send(self, text: str) -> None:
        identity = str(uuid4())
        self.story.prompt_sent(text, identity)
        self.transcript.anchor()
        if not await self.attempt(self._client.prompt(text, uuid=identity)):
            self.story.prompt_failed(identity)

    async def attempt(self, doing: Awaitable[object]) -> bool:
        """Await an action of the client; False when it failed, which is shown."""
        try:
            await doing
        except (CcbError, ControlError) as error:
            self._show_error(error)
            return False
        return True

    @property
    def link(self) -> tuple[LinkState, str]:
        """The connection and why it is so."""
        return self._link, self._link_reason

    async def set_mode(self, mode: str) -> None:
        """Change the permission mode of the session."""
        if await self.attempt(self._client.control("set_permission_mode", mode=mode)):
            self.story.mode = mode

    async def on_approval_card_answered(self, event: ApprovalCard.Answered) -> None:
        self._withdraw(event.verdict.request_id)
        await self.attempt(self._client.answer(event.verdict.request_id, event.verdict.response))

    def on_approval_card_interrupted(self) -> None:
        self.action_interrupt()

    def on_approval_card_typed(self, event: ApprovalCard.Typed) -> None:
        self.composer.focus()
        self.composer.type(event.text)

    @work
    async def action_interrupt(self) -> None:
        """End the running turn."""
        if self.story.running:
            self.hint("interrupting")
            await self.attempt(self._client.interrupt())
            self.hint("", 0)

    def action_ladder(self) -> None:
        """Ctrl+C: clear the input, else interrupt, else quit when pressed twice."""
        if isinstance(self.focused, Input) and self.focused.value:
            self.focused.clear()
        elif self.composer.text and self.focused is self.composer:
            self.composer.clear()
        elif self.story.running:
            self.action_interrupt()
        elif self._quit_asked:
            self.exit(0)
        else:
            self._quit_asked = time.monotonic()
            self.hint("press Ctrl+C again to quit", _QUIT_WINDOW_S)

    def action_leave(self) -> None:
        """Ctrl+D: quit when nothing is typed."""
        if isinstance(self.focused, Input):
            self.focused.action_delete_right()
        elif self.composer.text:
            self.composer.action_delete_right()
        else:
            self.exit(0)

    def action_leave_now(self) -> None:
        """/quit."""
        self.exit(0)

    @work
    async def action_next_mode(self) -> None:
        """Shift+Tab: the next permission mode."""
        place = _MODES.index(self.story.mode) if self.story.mode in _MODES else -1
        await self.set_mode(_MODES[(place + 1) % len(_MODES)])

    def action_to_approval(self) -> None:
        """Alt+A: to the card."""
        if self.card is not None and not self.card.has_focus_within:
            self.card.focus()

    def action_toggle_approval(self) -> None:
        """Tab: to the card, and back; the card that has just taken the focus itself keeps it."""
        if self.card is not None and not self.card.has_focus_within:
            self.card.focus()
        elif time.monotonic() - self._card_came > GRACE_S:
            self.composer.rest()
            self.composer.focus()

    def farewell(self) -> str:
        """What stays on the terminal: which session it was, and what it used."""
        used = used_text(self.story.totals)
        lines = [f"Session {one_line(self._client.hello.session)} on {self._where}" + (f": {used}" if used else "")]
        if self._info.resume:
            lines.append(f"Come back with: {one_line(self._info.resume)}")
        return "\n".join(lines)

    def action_details(self) -> None:
        """Ctrl+O: all of tool output and thinking, or the summary."""
        self.transcript.toggle_details()

    def action_page(self, direction: int) -> None:
        """PgUp and PgDn."""
        if direction < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    def action_help(self) -> None:
        """F1."""
        self.transcript.add(TextBlock(text=help_markdown()))
        self.transcript.anchor()


async def run_repl(
    client: SessionClient, info: ReplInfo, first_prompt: str | None = None, *, prompts: Prompts | None = None
) -> int:
    """Show the session until the person leaves or a signal ends it; the exit code. The session itself is not ended here. What
    a later login asks through `prompts` is asked on the plain terminal."""
    app = Repl(client, info, first_prompt)
    if isinstance(prompts, TerminalPrompts):
        prompts.pause = app.suspend
    with Interrupts() as signals:
        signals.first.add_done_callback(lambda code: app.exit(int(code.result())))
        code = await app.run_async()
    if app.return_code:
        return ExitCode.INTERNAL  # Textual has shown where
    with suppress(OSError):  # the window may be closed
        sys.stdout.write(app.farewell() + "\n")
        sys.stdout.flush()
    return code or ExitCode.OK
