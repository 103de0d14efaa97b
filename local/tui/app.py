"""The REPL: composition, keys, and the way of things between session and screen."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any, ClassVar

from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import neutralise

from ..client import ControlError, LinkChange, LinkState, Received, SessionClient
from ..messages import ControlCancelRequest, ControlRequest, Result, parse_message
from .approval import GRACE_S, ApprovalCard, Verdict
from .blocks import Level, TextBlock
from .commands import Typed, help_markdown, parse_command
from .composer import Composer
from .info import ReplInfo
from .status import Facts, StatusLine, tokens
from .story import Story
from .transcript import Transcript

log = logging.getLogger(__name__)

_TICK_S = 0.1
_QUIT_WINDOW_S = 2.0
_MODES = ("default", "acceptEdits", "plan")


class Repl(App[int]):
    """One attached session on the screen. Ends with exit code 0 when the person leaves."""

    TITLE = "ccb"
    CSS = "Screen { layout: vertical; background: $background; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "interrupt", "Interrupt", show=False, id="interrupt"),
        Binding("ctrl+c", "ladder", "Clear, interrupt, quit", show=False, priority=True, id="ladder"),
        Binding("ctrl+d", "leave", "Quit", show=False, priority=True, id="leave"),
        Binding("shift+tab", "next_mode", "Mode", show=False, priority=True, id="mode"),
        Binding("alt+a", "to_approval", "Approval", show=False, priority=True, id="approval"),
        Binding("tab", "to_approval", "Approval", show=False, priority=True, id="approval-tab"),
        Binding("ctrl+o", "details", "Details", show=False, priority=True, id="details"),
        Binding("pageup", "page(-1)", "Up", show=False, priority=True, id="page-up"),
        Binding("pagedown", "page(1)", "Down", show=False, priority=True, id="page-down"),
        Binding("f1", "help", "Help", show=False, id="help"),
    ]

    def __init__(self, client: SessionClient, info: ReplInfo, first_prompt: str | None = None) -> None:
        super().__init__()
        self._client = client
        self._info = info
        self._first_prompt = first_prompt
        self._transcript = Transcript()
        self._composer = Composer()
        self._status = StatusLine()
        self.story = Story(self._transcript, model=info.model, mode=info.mode)
        self._questions: deque[ControlRequest] = deque()
        self._card: ApprovalCard | None = None
        self._link = client.state
        self._link_reason = ""
        self._busy_since: float | None = None
        self._quit_asked = 0.0
        self._hint = ""
        self._focused = True

    def compose(self) -> ComposeResult:
        yield self._transcript
        yield self._composer
        yield self._status

    def on_mount(self) -> None:
        self.title = f"ccb {neutralise(self._info.host)}:{neutralise(self._info.path)}"
        self._composer.focus()
        self.story.notice(
            f"ccb {self._info.version}  {self._where}\nThe agent works on {neutralise(self._info.host)}; F1 or /help for keys.",
            Level.DIM,
        )
        for note in self._client.hello.notes:
            self.story.notice(f"On the host: {neutralise(note)}", Level.DIM)
        self.set_interval(_TICK_S, self._tick)
        self._listen()
        if self._first_prompt:
            self._send(self._first_prompt)

    @property
    def _where(self) -> str:
        return f"{neutralise(self._info.host)}:{neutralise(self._info.path)}"

    @work(exit_on_error=True)
    async def _listen(self) -> None:
        """Show what the session says, to its end."""
        try:
            async for event in self._client.events():
                if isinstance(event, LinkChange):
                    self._link, self._link_reason = event.state, event.reason
                else:
                    self._received(event)
        except CcbError as error:
            self._link = LinkState.LOST
            self.story.notice("\n".join(part for part in (error.what, error.evidence, error.do) if part), Level.ERROR)
        else:
            self._link = LinkState.CLOSED
            self.story.notice("The session has ended. Ctrl+D leaves.", Level.WARNING)
        self.story.running = False
        self._questions.clear()
        await self._next_question()

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
        if self._card is not None and self._card.request is wanted:
            return
        if self._card is not None:
            await self._card.remove()
            self._card = None
            self._composer.focus()
        if wanted is not None:
            self._card = ApprovalCard(wanted, self._where, self._transcript.look(), waiting=len(self._questions) - 1)
            await self.mount(self._card, before=self._composer)

    def _withdraw(self, request_id: str) -> None:
        self._questions = deque(each for each in self._questions if each.request_id != request_id)
        self.call_later(self._next_question)

    def _tick(self) -> None:
        if self.story.running and self._busy_since is None:
            self._busy_since = time.monotonic()
        elif not self.story.running:
            self._busy_since = None
        self._transcript.tick()
        card = self._card
        if (
            card is not None
            and self.focused is self._composer
            and not self._composer.text
            and self._composer.quiet_for() > GRACE_S
        ):
            card.focus()
        if self._quit_asked and time.monotonic() - self._quit_asked > _QUIT_WINDOW_S:
            self._quit_asked = 0.0
            self._hint = ""
        self._show_status()

    def _show_status(self) -> None:
        busy = time.monotonic() - self._busy_since if self._busy_since is not None else None
        hint = self._hint
        if not hint and self._card is not None and not self._card.has_focus_within:
            hint = "approval waits: Tab"
        elif not hint and self._transcript.max_scroll_y - self._transcript.scroll_y > 1:
            hint = "↓ more below"
        facts = Facts(
            self._where, self.story.model, self.story.mode, self._link, self._link_reason, self.story.totals, busy, hint
        )
        self._status.show(facts, self._transcript.look())

    def on_app_focus(self) -> None:
        self._focused = True

    def on_app_blur(self) -> None:
        self._focused = False

    def on_composer_sent(self, event: Composer.Sent) -> None:
        typed = parse_command(event.text)
        if typed is not None:
            self._command(typed)
        else:
            self._send(event.text)

    def on_paste(self, event: events.Paste) -> None:
        if self._card is not None and self._card.has_focus:
            event.stop()

    @work
    async def _send(self, text: str) -> None:
        self.story.prompt_sent(text)
        self._transcript.anchor()
        await self._try(self._client.prompt(text))

    async def _try(self, doing: Any) -> bool:
        """Await an action of the client; a failure is shown."""
        try:
            await doing
        except (CcbError, ControlError) as error:
            self.story.notice(neutralise(str(error)), Level.ERROR)
            return False
        return True

    @work
    async def _command(self, typed: Typed) -> None:
        if typed.command is None:
            self.story.notice(f"There is no command /{neutralise(typed.name)}. /help lists them.", Level.WARNING)
        elif typed.name == "help":
            self.action_help()
        elif typed.name == "quit":
            self.exit(0)
        elif typed.name == "model" and typed.argument:
            if await self._try(self._client.control("set_model", model=typed.argument)):
                self.story.notice(f"Model: {typed.argument}", Level.DIM)
        elif typed.name == "model":
            self.story.notice(f"Model: {self.story.model}", Level.DIM)
        elif typed.name == "mode" and typed.argument:
            await self._set_mode(typed.argument)
        elif typed.name == "mode":
            self.story.notice(f"Permission mode: {self.story.mode}", Level.DIM)
        elif typed.name == "copy":
            self.copy_to_clipboard(self.story.last_answer)
            self.story.notice(
                "Copied the last answer." if self.story.last_answer else "There is no answer yet.", Level.DIM
            )
        elif typed.name == "cost":
            totals = self.story.totals
            text = (
                f"{tokens(totals.input_tokens)} tokens in, {tokens(totals.output_tokens)} out, ${totals.cost_usd:.4f}"
            )
            self.story.notice(text, Level.DIM)
        elif typed.name == "status":
            self._show_session()

    def _show_session(self) -> None:
        hello = self._client.hello
        lines = [
            f"Session {hello.session}",
            f"{self._where}, worker pid {hello.pid}, Python {neutralise(hello.python)} on {neutralise(hello.platform)}",
            f"Connection {self._link.value}{': ' + self._link_reason if self._link_reason else ''}, storage {hello.storage}",
        ]
        self.story.notice("\n".join(lines), Level.DIM)

    async def _set_mode(self, mode: str) -> None:
        if await self._try(self._client.control("set_permission_mode", mode=mode)):
            self.story.mode = mode

    async def on_approval_card_answered(self, event: ApprovalCard.Answered) -> None:
        await self._decided(event.verdict)

    async def _decided(self, verdict: Verdict) -> None:
        self._withdraw(verdict.request_id)
        await self._try(self._client.answer(verdict.request_id, verdict.response))

    def on_approval_card_interrupted(self) -> None:
        self.action_interrupt()

    @work
    async def action_interrupt(self) -> None:
        """End the running turn."""
        if self.story.running:
            await self._try(self._client.interrupt())

    def action_ladder(self) -> None:
        """Ctrl+C: clear the input, else interrupt, else quit when pressed twice."""
        if self._composer.text and self.focused is self._composer:
            self._composer.text = ""
        elif self.story.running:
            self.action_interrupt()
        elif self._quit_asked:
            self.exit(0)
        else:
            self._quit_asked = time.monotonic()
            self._hint = "press Ctrl+C again to quit"
            self._show_status()

    def action_leave(self) -> None:
        """Ctrl+D: quit when nothing is typed."""
        if self._composer.text:
            self._composer.action_delete_right()
        else:
            self.exit(0)

    @work
    async def action_next_mode(self) -> None:
        """Shift+Tab: the next permission mode."""
        place = _MODES.index(self.story.mode) if self.story.mode in _MODES else -1
        await self._set_mode(_MODES[(place + 1) % len(_MODES)])

    def action_to_approval(self) -> None:
        """Tab: to the card, and back."""
        if self._card is not None and not self._card.has_focus_within:
            self._card.focus()
        else:
            self._composer.focus()

    def action_details(self) -> None:
        """Ctrl+O: all of tool output and thinking, or the summary."""
        self._transcript.toggle_details()

    def action_page(self, direction: int) -> None:
        """PgUp and PgDn."""
        if direction < 0:
            self._transcript.scroll_page_up(animate=False)
        else:
            self._transcript.scroll_page_down(animate=False)

    def action_help(self) -> None:
        """F1."""
        self._transcript.add(TextBlock(text=help_markdown()))


async def run_repl(client: SessionClient, info: ReplInfo, first_prompt: str | None = None) -> int:
    """Show the session until the person leaves; the exit code. The session itself is not ended here."""
    app = Repl(client, info, first_prompt)
    return await app.run_async() or 0
