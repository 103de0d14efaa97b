"""The REPL as a Textual application: it puts the parts together, and turns keys into actions."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.widgets import Input

from ccb.tunnel.errors import CcbError
from ccb.tunnel.login.prompter import Prompts
from ccb.tunnel.plain_text import one_line

from ..command_line.exit_codes import ExitCode
from ..login.prompts import TerminalPrompts
from ..session.client import LaptopNotice, LinkChange, LinkState, SessionClient, Skipped
from ..terminal.background import NO_ANSWER
from ..terminal.clipboard import copy
from ..terminal.signals import Interrupts
from .approvals import Approvals
from .command_replies import CommandReplies
from .commands import help_markdown, parse_command, refusal
from .connection_presenter import ConnectionPresenter
from .event_router import EventRouter
from .leaving import QUIT_WINDOW_S, Leaving, SessionFate
from .model.blocks import Level, MarkdownBlock
from .model.transcript_reducer import TranscriptReducer
from .pulse import Pulse
from .session_actions import SessionActions
from .status_presenter import StatusPresenter
from .terminal_driver import LoginHandover, TerminalDriver
from .theme.themes import ALL_THEMES, terminal_colours
from .widgets.approval import ApprovalCard
from .widgets.composer import Composer
from .widgets.connection import RETRY_KEY, Banner, ConnectionView
from .widgets.history import HistoryLoader
from .widgets.info import LeftSession, ReplExit, ReplInfo, farewell
from .widgets.status import used_text
from .widgets.transcript import Transcript

_TALL_LINES = 16
_BACKGROUND_S = 2.0
"""Seconds in which the terminal may say what its background is; later the colours stay as they are."""


class Repl(App[int]):
    """One attached session on the screen. The app returns exit code 0 when the person leaves, or the code of the
    error by which the session was lost."""

    TITLE = "ccb"
    CSS = """
    Screen { layout: vertical; background: $background; overflow: hidden; }
    Screen:ansi > .screen--selection { text-style: reverse; }
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
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True, id="quit"),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, priority=True, id="suspend"),
        Binding("ctrl+d", "leave", "Quit", show=False, priority=True, id="leave"),
        Binding("shift+tab", "next_mode", "Mode", show=False, priority=True, id="mode"),
        Binding("alt+a", "to_approval", "Approval", show=False, priority=True, id="approval"),
        Binding("tab", "toggle_approval", "Approval", show=False, priority=True, id="approval-tab"),
        Binding("ctrl+o", "details", "Details", show=False, priority=True, id="details"),
        Binding("pageup", "page(-1)", "Up", show=False, priority=True, id="page-up"),
        Binding("pagedown", "page(1)", "Down", show=False, priority=True, id="page-down"),
        Binding("f1", "help", "Help", show=False, priority=True, id="help"),
    ]

    VERTICAL_BREAKPOINTS = [(0, "-short"), (_TALL_LINES, "-tall")]  # noqa: RUF012 - no ClassVar in Textual either

    def __init__(self, client: SessionClient, info: ReplInfo, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._colours = terminal_colours(environ)
        super().__init__(ansi_color=True if self._colours.few else None)
        for theme in ALL_THEMES:
            self.register_theme(theme)
        self.theme = self._colours.theme
        self._asked_background_at: float | None = None
        self._pulse: Pulse | None = None
        self._client = client
        self._info = info
        self.transcript = Transcript(info.path.rstrip("/"))
        self.composer = Composer()
        self.connection = ConnectionView(client)
        self.reducer = TranscriptReducer(
            self.transcript, model=info.model, mode=info.mode, sandbox=info.sandbox, own_name=info.client_name
        )
        self.approvals = Approvals(client, self.connection, self.transcript, self.composer, info.place)
        self._history = HistoryLoader(client, self.transcript, self.reducer)
        self._status = StatusPresenter(info, self.reducer, self.connection, self.approvals, self.transcript)
        self.leaving = Leaving()
        self._actions = SessionActions(
            client, self.reducer, self.connection, self.approvals, self._status, self.leaving
        )
        self.login_handover = LoginHandover(self, one_line(info.host))

    def _ask_background(self) -> None:
        """Ask the terminal whether its background is light, if the environment does not say it. Nothing waits for the
        answer."""
        answers = self._environ.get("TERM", "") not in NO_ANSWER
        if self._colours.light is None and answers and isinstance(self._driver, TerminalDriver):
            self._asked_background_at = time.monotonic()
            self._driver.ask_background()

    def on_terminal_driver_background(self, event: TerminalDriver.Background) -> None:
        """Take the theme that fits the terminal's background, unless its answer comes when the person has read on."""
        asked_at, self._asked_background_at = self._asked_background_at, None
        if asked_at is not None and time.monotonic() - asked_at < _BACKGROUND_S:
            self._colours = replace(self._colours, light=event.light)
            self.theme = self._colours.theme

    def choose_theme(self, name: str) -> bool:
        """Use the dark or the light theme. Return False if `name` is neither."""
        if name not in self._colours.themes:
            return False
        self._asked_background_at = None
        self.theme = self._colours.themes[name]
        return True

    def get_driver_class(self) -> type[Driver]:
        return TerminalDriver

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self.approvals
        yield Banner()
        yield self.composer
        yield self._status.line

    @property
    def card(self) -> ApprovalCard | None:
        """The approval card on the screen."""
        return self.approvals.card

    def on_mount(self) -> None:
        self._ask_background()
        self._set_window_title(f"ccb {self._info.place}")
        self.composer.focus()
        host = one_line(self._info.host)
        self.reducer.notice(
            f"ccb {self._info.version}  {self._info.place}\nThe agent works on {host}. F1 or /help shows the keys.",
            Level.DIM,
        )
        hello = self._client.hello
        level = Level.DIM if hello.storage == "disk" else Level.WARNING  # show at once that the session may not last
        for note in hello.notes:
            self.reducer.notice(f"On the host: {one_line(note)}", level)
        presenter = ConnectionPresenter(
            self.connection, self.query_one(Banner), self.composer, self.approvals, self.transcript, self.reducer
        )
        self._pulse = Pulse(self, lambda: self._tick(presenter))
        self._listen(presenter)
        if self._info.first_prompt:
            self._send(self._info.first_prompt)

    def _set_window_title(self, title: str) -> None:
        """Name the terminal's window. The old name comes back at the end (xterm's title stack)."""
        self.title = title
        if self._driver is not None and not self.is_headless:
            self._driver.write(f"\x1b[22;2t\x1b]2;{title}\x07")

    def on_unmount(self) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write("\x1b]2;\x07\x1b[23;2t")

    @property
    def bug(self) -> Exception | None:
        """The exception that ended the interface."""
        return self._exception

    def _print_error_renderables(self) -> None:
        """Print nothing: Textual would show a traceback with the values of variables. `run_repl` raises the exception
        for the last handler, which logs it."""
        self._exit_renderables.clear()

    # Events of the session.

    @work(exit_on_error=True)
    async def _listen(self, presenter: ConnectionPresenter) -> None:
        """Show the events of the session until it ends."""
        router = EventRouter(self._client, self.reducer, self.approvals, self._history, self._ring)
        try:
            async for event in self._client.events():
                if self._pulse is not None:
                    self._pulse.wake()
                if isinstance(event, LinkChange):
                    self._link_changed(presenter, event)
                elif isinstance(event, Skipped):
                    router.skipped(event)
                elif isinstance(event, LaptopNotice):
                    self.reducer.notice(event.text, Level.WARNING)
                else:
                    router.received(event)
        except CcbError as error:
            self._link_changed(presenter, LinkChange(LinkState.LOST, error.what))
            self._session_ended(error)
        else:
            self._link_changed(presenter, LinkChange(LinkState.CLOSED))
            self._session_ended(None)

    def _link_changed(self, presenter: ConnectionPresenter, change: LinkChange) -> None:
        if not presenter.changed(change, time.monotonic()):
            return
        self._status.clear_hint()  # the attempt that a hint announced has succeeded or failed
        if change.state in (LinkState.NEEDS_PERSON, LinkState.FENCED):
            self._ring()
        self._status.show()

    def _session_ended(self, error: CcbError | None) -> None:
        self.reducer.session_ended()
        self.approvals.clear()
        fate = self.leaving.session_ended(error)
        if fate is SessionFate.STOPPED:
            self.exit(0)
            return
        if error is None:
            self.reducer.notice("The session has ended on the host. Ctrl+D leaves.", Level.WARNING)
        else:
            self._actions.show_error(error)
            command = self._info.resume
            come_back = f" Come back with:\n{one_line(command)}" if command and command not in error.do else ""
            self.reducer.notice(f"Ctrl+D leaves.{come_back}", Level.WARNING)
        self.composer.invite("Nothing can be sent any more: Ctrl+D leaves")

    def _ring(self) -> None:
        """Ring the bell if another window has the focus."""
        if not self.app_focus and not self.login_handover.active:
            self.bell()

    def _tick(self, presenter: ConnectionPresenter) -> bool:
        """Bring everything up to date that changes with time. Return whether it should happen again soon."""
        now = time.monotonic()
        presenter.tick(now)
        self.leaving.tick(now)
        self._status.tick(now)
        return self.connection.shown is not LinkState.CONNECTED or not self.connection.up or self.approvals.unsettled

    async def on_event(self, event: events.Event) -> None:
        if self._pulse is not None and isinstance(event, events.InputEvent | events.Paste):
            self._pulse.wake()
        await super().on_event(event)

    def login_says(self, text: str) -> None:
        """Show text of a login that is not a question. A ProxyCommand may print some even after the login."""
        if self.connection.state is not LinkState.CONNECTED:
            self.call_later(self.reducer.notice, text)  # the caller does not run in the context of this app

    # Actions of the person.

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        text = event.text.strip()
        command, why_not = parse_command(text), refusal(event.text)
        if why_not:
            self.reducer.notice(why_not, Level.WARNING)
            self.composer.give_back(event.text)
        elif command is not None:
            replies = CommandReplies(self, self._actions, self._client.hello, self._info)
            self.run_worker(replies.answer(command))
        else:
            self._send(text)

    @work
    async def _send(self, text: str) -> None:
        self.transcript.anchor()
        if not await self._actions.send_prompt(text):
            self.composer.give_back(text)

    def on_composer_shortcut(self, event: Composer.Shortcut) -> None:
        if event.key == RETRY_KEY:
            self.action_retry()

    def on_composer_submit_refused(self) -> None:
        self._status.hint(self.connection.only_watches_hint())

    async def on_approval_card_answered(self, event: ApprovalCard.Answered) -> None:
        await self._actions.answer(event.answer)

    def on_approval_card_left(self) -> None:
        self.composer.focus()

    def on_approval_card_text_typed(self, event: ApprovalCard.TextTyped) -> None:
        self.composer.focus()
        if self.composer.is_shortcut(event.text):
            self.on_composer_shortcut(Composer.Shortcut(event.text))
        else:
            self.composer.type(event.text)

    def on_transcript_wheel_up(self) -> None:
        hole = self._history.hole_on_screen()
        if hole is not None:
            self.run_worker(self._history.load(hole, turn_page=False))

    def on_text_selected(self) -> None:
        """Copy the text selected with the mouse at once: the terminal's own selection does not work here."""
        text = self.screen.get_selected_text()
        if text:
            self.copy_to_clipboard(text)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a text, and say in the status line what happened to it."""
        self._copy(text)

    @work
    async def _copy(self, text: str) -> None:
        self._status.hint(await self.copied(text))

    async def copied(self, text: str) -> str:
        """Copy a text. Return what happened to it, in words that follow "it was"."""
        self._clipboard = text
        driver = self._driver
        return await copy(text, self._environ, driver.write) if driver is not None else "not copied"

    def on_resize(self) -> None:
        self.approvals.fit_card()

    def action_retry(self) -> None:
        """Alt+R: connect now, or log in."""
        self._status.hint(self.connection.retry())

    def action_take_back(self) -> None:
        """Alt+T: drive the session."""
        self._status.hint(self.connection.take_back())

    @work
    async def action_interrupt(self) -> None:
        """Esc: end the running turn."""
        await self._actions.interrupt()

    def action_ladder(self) -> None:
        """Ctrl+C: clear the input, else interrupt, else quit if pressed twice. It also quits while an interrupt is
        on its way. A terminal that only watches can only quit."""
        drives = not self.connection.watching
        if isinstance(self.focused, Input) and self.focused.value:
            self.focused.clear()
        elif drives and self.composer.text and self.focused is self.composer:
            self.composer.clear()
        elif drives and self._actions.can_interrupt:
            self.action_interrupt()
        else:
            self._quit_if_pressed_twice("Ctrl+C")

    async def action_quit(self) -> None:
        """Ctrl+Q: quit if pressed twice."""
        self._quit_if_pressed_twice("Ctrl+Q")

    def _quit_if_pressed_twice(self, key: str) -> None:
        if self.leaving.quit_pressed(time.monotonic()):
            self.leave()
        else:
            self._status.hint(f"press {key} again to quit", QUIT_WINDOW_S)

    def action_suspend_process(self) -> None:
        """Ctrl+Z: stop ccb and give the terminal back to the shell, whose `fg` continues it."""
        if isinstance(self._driver, TerminalDriver) and not self._driver.suspend_process():
            self._status.hint("no shell started ccb here, so nothing could continue it")

    def action_leave(self) -> None:
        """Ctrl+D: quit if nothing is typed."""
        if isinstance(self.focused, Input):
            self.focused.action_delete_right()
        elif self.composer.text:
            self.composer.action_delete_right()
        else:
            self.leave()

    def leave(self) -> None:
        """Leave the session, which keeps running on the host."""
        self.exit(self.leaving.exit_code)

    @work
    async def action_next_mode(self) -> None:
        """Shift+Tab: the next permission mode."""
        await self._actions.next_mode()

    def action_to_approval(self) -> None:
        """Alt+A: move the focus to the approval card."""
        self.approvals.focus_card()

    def action_toggle_approval(self) -> None:
        """Tab: move the focus to the approval card, or back."""
        self.approvals.toggle_focus()

    def action_details(self) -> None:
        """Ctrl+O: show all of tool output and thinking, or the summary."""
        self.transcript.toggle_details()

    def action_page(self, direction: int) -> None:
        """PgUp and PgDn: scroll the approval card if it has the focus and is longer than shown, else the transcript."""
        if self.approvals.turn_page(direction):
            return
        hole = self._history.hole_on_screen() if direction < 0 else None
        if hole is not None:
            self.run_worker(self._history.load(hole, turn_page=True))
        else:
            self.transcript.turn(direction)

    def action_help(self) -> None:
        """F1: show the keys and commands."""
        self.transcript.add(MarkdownBlock(text=help_markdown()))
        self.transcript.anchor()

    def farewell(self) -> str:
        """Return the text that stays on the terminal."""
        hello, error = self._client.hello, self.leaving.error
        left = LeftSession(
            session_id=hello.session,
            used=used_text(self.reducer.totals),
            in_memory=hello.storage == "memory",
            stopped=self.leaving.stopped,
            lost=error.what if error is not None else "",
            asking=self.approvals.open_count > 0,
            working=self.reducer.running,
        )
        return farewell(self._info, left)


async def run_repl(client: SessionClient, info: ReplInfo, *, prompts: Prompts | None = None) -> ReplExit:
    """Show the session until the person leaves or a signal ends the REPL. The session goes on, unless the person
    gave /stop. Questions of a later login, which come through `prompts`, are asked on the plain terminal."""
    app = Repl(client, info)
    if isinstance(prompts, TerminalPrompts):
        prompts.pause, prompts.heard = app.login_handover.suspend, app.login_says
    try:
        with Interrupts() as signals:
            signals.first.add_done_callback(lambda code: app.exit(int(code.result())))
            code = await app.run_async()
    finally:
        if isinstance(prompts, TerminalPrompts):
            prompts.pause = prompts.heard = None
    if app.return_code:
        raise app.bug or RuntimeError("the interface ended")
    with suppress(OSError):  # the window may be closed
        sys.stdout.write(app.farewell() + "\n")
        sys.stdout.flush()
    return ReplExit(code or ExitCode.OK, app.leaving.stopped)
