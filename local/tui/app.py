"""The REPL: composition, keys, and the way of things between session and screen."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar
from uuid import uuid4

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.widgets import Input

from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.login.prompter import Prompts
from ccb.tunnel.plain_text import neutralise, one_line

from ..command_line.error_text import code_of
from ..command_line.exit_codes import ExitCode
from ..login.prompts import TerminalPrompts
from ..session.client import ControlError, LinkChange, LinkState, SessionClient, Skipped
from ..terminal.signals import Interrupts
from .approvals import Approvals
from .command_replies import Replies
from .commands import help_markdown, parse_command
from .event_router import Feed
from .model.blocks import Level, TextBlock
from .model.transcript_reducer import Story
from .suspend import aside
from .terminal_driver import Window
from .theme.themes import DARK, LIGHT, fitting_theme
from .widgets.approval import ApprovalCard
from .widgets.composer import Composer
from .widgets.connection import RETRY_KEY, Banner, Connection
from .widgets.history import History
from .widgets.info import Left, ReplInfo, farewell
from .widgets.status import Facts, StatusLine, used_text
from .widgets.transcript import Transcript

log = logging.getLogger(__name__)

_TICK_S = 0.1
_QUIT_WINDOW_S = 2.0
_HINT_S = 3.0
_TALL = 16
_LATER = "sent when the connection is there again"
_MODES = ("default", "acceptEdits", "plan")


class Repl(App[int]):
    """One attached session on the screen. When the person leaves it ends with exit code 0, or the code of the error that had
    ended the session here."""

    TITLE = "ccb"
    CSS = """
    Screen { layout: vertical; background: $background; overflow: hidden; }
    .-short ApprovalCard, .-short ApprovalCard:focus, .-short ApprovalCard:focus-within {
        border: none; border-top: heavy $warning;
    }
    .-short ApprovalCard .reason { max-height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    .-short Banner { padding: 0 1; }
    .-short Composer, .-short Composer:focus { border: none; min-height: 1; max-height: 3; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("alt+r,f5", "retry", "Connect", show=False, priority=True, id="retry"),
        Binding("alt+t,f8", "take_back", "Drive", show=False, priority=True, id="take-back"),
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
        self._banner = Banner()
        self.connection = Connection(client)
        self.story = Story(self.transcript, model=info.model, mode=info.mode, me=info.who)
        self._history = History(client, self.transcript, self.story)
        self.approvals = Approvals(client, self.connection, self.transcript, self.composer, self._where)
        self._feed = Feed(client, self.story, self.approvals, self._history, self._ring)
        self._sending = True
        self._interrupting = False
        self._aside = False
        self._stopping = False
        self.stopped = False
        self._lost: CcbError | None = None
        self._busy_since: float | None = None
        self._turn = 0
        self._quit_asked = 0.0
        self._hint = ""
        self._hint_until = 0.0
        self._focused = True

    def get_driver_class(self) -> type[Driver]:
        return Window

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self.approvals
        yield self._banner
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
        hello = self._client.hello
        for note in hello.notes:  # a session that may not last is worth a look
            self.story.notice(f"On the host: {one_line(note)}", Level.DIM if hello.storage == "disk" else Level.WARNING)
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
                    self._link_changed(event)
                elif isinstance(event, Skipped):
                    self._feed.skipped(event)
                else:
                    self._feed.received(event)
        except CcbError as error:
            self._link_changed(LinkChange(LinkState.LOST, error.what))
            self._end(error)
        else:
            self._link_changed(LinkChange(LinkState.CLOSED))
            self._end(None)

    def _end(self, error: CcbError | None) -> None:
        self.story.ended()
        self.approvals.questions.clear()
        if self._stopping and error is None:
            self.stopped = True
            self.exit(0)
            return
        if error is None:
            self.story.notice("The session has ended on the host. Ctrl+D leaves.", Level.WARNING)
        else:
            self._lost = error
            self._show_error(error)
            come_back = f" Come back with:\n{one_line(self._info.resume)}" if self._info.resume else ""
            known = bool(self._info.resume) and self._info.resume in error.do
            self.story.notice(f"Ctrl+D leaves.{'' if known else come_back}", Level.WARNING)
        self.composer.invite("Nothing can be sent any more: Ctrl+D leaves")
        self.approvals.show_next()

    def _link_changed(self, change: LinkChange) -> None:
        before, now = self.connection.state, time.monotonic()
        self.connection.changed(change, now)
        self._follow_connection(now)
        if change.state is before:
            return
        self._hint = ""  # "connecting" has come true, or not
        if change.state in (LinkState.NEEDS_PERSON, LinkState.FENCED):
            self._ring()
        self._show_status()

    def _show_error(self, error: CcbError | ControlError) -> None:
        parts = (error.what, error.evidence, error.do) if isinstance(error, CcbError) else (str(error),)
        self.story.notice("\n".join(neutralise(part) for part in parts if part), Level.ERROR)

    def _ring(self) -> None:
        if not self._focused and not self._aside:
            self.bell()

    @property
    def card(self) -> ApprovalCard | None:
        """The card of the open question that is shown."""
        return self.approvals.card

    def _tick(self) -> None:
        now = time.monotonic()
        self._follow_connection(now)
        if self.story.running and (self._busy_since is None or self._turn != self.story.turns):
            self._busy_since, self._turn = now, self.story.turns
        elif not self.story.running:
            self._busy_since = None
        self.transcript.tick()
        if self._quit_asked and now - self._quit_asked > _QUIT_WINDOW_S:
            self._quit_asked = 0.0
        if now > self._hint_until:
            self._hint = ""
        self._show_status()

    def _follow_connection(self, now: float) -> None:
        """Show the connection, and what depends on it."""
        if not (self._banner.is_attached and self.approvals.is_attached):  # the interface is being left
            return
        connection = self.connection
        connection.settle(now)
        sending = connection.shown is LinkState.CONNECTED
        stopped, self._sending = self._sending and not sending, sending
        if stopped:
            self.story.link_lost()
        elif connection.up and self.story.asked.unsent and not (self._client.unsent or self.approvals.replaying):
            self.story.all_sent()
        self.approvals.tick(now)
        self.composer.shortcuts = connection.keys()
        self.composer.close_for("Nothing can be sent while this terminal only watches" if connection.watching else "")
        self._banner.show(connection, now, self.transcript.look(), typing=bool(self.composer.text))

    def hint(self, text: str, seconds: float = _HINT_S) -> None:
        """Say something in the status line for a while."""
        self._hint, self._hint_until = text, time.monotonic() + seconds
        self._show_status()

    def _show_status(self) -> None:
        busy = time.monotonic() - self._busy_since if self._busy_since is not None else None
        info, story, link = self._info, self.story, self.connection.shown
        waits, below = self.approvals.waits, self.transcript.below > 1
        facts = Facts(info.host, info.path, story.model, story.mode, link, story.totals, busy, self._hint, waits, below)
        self._status.show(facts, self.transcript.look())

    def on_resize(self) -> None:
        self.approvals.fit()

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

    def on_composer_shortcut(self, event: Composer.Shortcut) -> None:
        if event.key == RETRY_KEY:
            self.action_retry()
        else:
            self.action_take_back()

    def on_composer_refused(self) -> None:
        self.hint(self.connection.watches())

    def action_retry(self) -> None:
        """Alt+R: connect now, or log in."""
        self.hint(self.connection.retry())

    def action_take_back(self) -> None:
        """Alt+T: drive again."""
        self.hint(self.connection.take_back())

    @work
    async def _send(self, text: str) -> None:
        identity = str(uuid4())
        self.story.prompt_sent(text, identity, connected=self.connection.state is LinkState.CONNECTED)
        self.transcript.anchor()
        try:
            await self._client.prompt(text, uuid=identity)
        except UsageError as error:
            self.story.prompt_refused(identity)
            self.composer.give_back(text)
            self.hint(f"not sent: {one_line(error.what)}")
        except CcbError as error:
            if error is not self._lost:  # that one is on the screen
                self._show_error(error)
            self.story.prompt_failed(identity)

    async def attempt(self, doing: Awaitable[object]) -> bool:
        """Await an action of the client; False when it failed, which is shown."""
        if not self.connection.up:
            self.hint(_LATER)
        try:
            await doing
        except UsageError as error:
            self.hint(one_line(error.what))
            return False
        except (CcbError, ControlError) as error:
            self._show_error(error)
            return False
        return True

    @property
    def link(self) -> tuple[LinkState, str]:
        """The connection and why it is so."""
        return self.connection.state, self.connection.reason

    async def set_mode(self, mode: str) -> None:
        """Change the permission mode of the session."""
        if await self.attempt(self._client.control("set_permission_mode", mode=mode)):
            self.story.mode = mode

    async def on_approval_card_answered(self, event: ApprovalCard.Answered) -> None:
        request_id, asked = event.verdict.request_id, self.approvals.questions.first()
        self.approvals.questions.answered(request_id)
        self.approvals.show_next()
        answered = await self.attempt(self._client.answer(request_id, event.verdict.response))
        if not answered and asked is not None and asked.request_id == request_id:
            self.approvals.questions.not_answered(asked)

    def on_approval_card_interrupted(self) -> None:
        self.action_interrupt()

    def on_approval_card_typed(self, event: ApprovalCard.Typed) -> None:
        self.composer.focus()
        if self.composer.takes(event.text):
            self.on_composer_shortcut(Composer.Shortcut(event.text))
        else:
            self.composer.type(event.text)

    @work
    async def action_interrupt(self) -> None:
        """End the running turn."""
        if self.connection.watching:
            self.hint(self.connection.watches())
        elif self.story.running and not self._interrupting:
            self._interrupting = True
            self.hint("interrupting")
            interrupted = await self.attempt(self._client.interrupt())
            self._interrupting = False
            if interrupted:  # else the hint may say why it was not
                self.hint("", 0)

    def action_ladder(self) -> None:
        """Ctrl+C: clear the input, else interrupt, else (also while the interrupt is on its way) quit when pressed twice. Who
        only watches can do neither of the first two."""
        drives = not self.connection.watching
        if isinstance(self.focused, Input) and self.focused.value:
            self.focused.clear()
        elif drives and self.composer.text and self.focused is self.composer:
            self.composer.clear()
        elif drives and self.story.running and not self._interrupting:
            self.action_interrupt()
        elif self._quit_asked:
            self.action_leave_now()
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
            self.action_leave_now()

    def action_leave_now(self) -> None:
        """/quit."""
        self.exit(code_of(self._lost) if self._lost is not None else ExitCode.OK)

    async def stop_session(self) -> None:
        """/stop: end the session on the host, then leave."""
        if self.connection.state in (LinkState.LOST, LinkState.CLOSED):
            self.hint("there is no session to stop")
            return
        if self.connection.watching:
            self.hint(self.connection.watches())
            return
        self._stopping = True
        host = one_line(self._info.host)
        when = "" if self.connection.up else " when the connection is there again"
        self.story.notice(f"Stopping the session on {host}{when} …", Level.WARNING)
        await self.attempt(self._client.stop())

    @work
    async def action_next_mode(self) -> None:
        """Shift+Tab: the next permission mode."""
        place = _MODES.index(self.story.mode) if self.story.mode in _MODES else -1
        await self.set_mode(_MODES[(place + 1) % len(_MODES)])

    def action_to_approval(self) -> None:
        """Alt+A: to the card."""
        self.approvals.go()

    def action_toggle_approval(self) -> None:
        """Tab: to the card, and back."""
        self.approvals.toggle()

    def farewell(self) -> str:
        """What stays on the terminal."""
        return farewell(
            self._info,
            self._client.hello.session,
            used_text(self.story.totals),
            stopped=self.stopped,
            asked=len(self.approvals.questions) > 0,
            working=self.story.running,
            lost=self._lost.what if self._lost is not None else "",
            in_memory=self._client.hello.storage == "memory",
        )

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the terminal to a question of the login."""
        self._aside = True
        try:
            with aside(self, f"ccb: logging in to {one_line(self._info.host)} again"):
                yield
        finally:
            self._aside = False

    def action_details(self) -> None:
        """Ctrl+O: all of tool output and thinking, or the summary."""
        self.transcript.toggle_details()

    def action_page(self, direction: int) -> None:
        """PgUp and PgDn: the card that is being read, if it is longer than it is shown, else the transcript."""
        if self.card is not None and self.card.has_focus_within and self.card.turn(direction):
            return
        hole = self._history.wanted() if direction < 0 else None
        if hole is not None:
            self.run_worker(self._history.load(hole, turn_page=True))
        else:
            self.transcript.turn(direction)

    def on_transcript_wheel_up(self) -> None:
        hole = self._history.wanted()
        if hole is not None:
            self.run_worker(self._history.load(hole, turn_page=False))

    def login_says(self, text: str) -> None:
        """Show what a login says; a ProxyCommand may go on speaking after it."""
        if self.connection.state is not LinkState.CONNECTED:
            self.call_later(self.story.notice, text)  # who says it does not know this interface

    def action_help(self) -> None:
        """F1."""
        self.transcript.add(TextBlock(text=help_markdown()))
        self.transcript.anchor()


async def run_repl(
    client: SessionClient, info: ReplInfo, first_prompt: str | None = None, *, prompts: Prompts | None = None
) -> Left:
    """Show the session until the person leaves or a signal ends it. The session goes on, but for /stop. What a later login asks
    through `prompts` is asked on the plain terminal."""
    app = Repl(client, info, first_prompt)
    if isinstance(prompts, TerminalPrompts):
        prompts.pause, prompts.heard = app.aside, app.login_says
    try:
        with Interrupts() as signals:
            signals.first.add_done_callback(lambda code: app.exit(int(code.result())))
            code = await app.run_async()
    finally:
        if isinstance(prompts, TerminalPrompts):
            prompts.pause = prompts.heard = None
    if app.return_code:
        return Left(ExitCode.INTERNAL)  # Textual has shown where
    with suppress(OSError):  # the window may be closed
        sys.stdout.write(app.farewell() + "\n")
        sys.stdout.flush()
    return Left(code or ExitCode.OK, app.stopped)
