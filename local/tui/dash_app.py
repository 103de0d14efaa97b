"""The screen of `ccb dash`. It ends with what the person wants to open, and comes back after that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import Screen

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL
from ccb.tunnel.wire.dataclass import dataclass

from ..config.settings_loading import DEFAULT_SCREEN, ScreenSettings
from ..connect.connect_session import view_session
from ..dash.dash_model import Dash, DashRow, HostWatch
from .appearance import Appearance
from .attention import Attention
from .panels.dash_panel import DashPanel, Entry
from .question_desk import QuestionDesk
from .rendering.themes import terminal_colours
from .terminal_driver import TerminalDriver
from .widgets.painting import KeyPriority, ReplScreen

_AGES_S = 5.0  # seconds after which the ages are drawn again
_LOG_LINES = 200


@dataclass(frozen=True)
class DashChoice:
    """What to open: a session, a new one in `directory` if `session` is "", or with neither the login of the host."""

    host: HostWatch
    session: str = ""
    directory: str = ""


class DashApp(App[DashChoice]):
    """Shows `dash` until the person opens something, or leaves with None."""

    TITLE = "ccb dash"
    CSS = "Screen { layout: vertical; background: $background; overflow: hidden; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "leave", show=False, priority=True),
        Binding("tab", "go_to_card", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(
        self,
        dash: Dash,
        environ: Mapping[str, str],
        screen: ScreenSettings = DEFAULT_SCREEN,
        attend: Callable[[Attention], object] = lambda attention: None,
    ) -> None:
        colours = terminal_colours(environ)
        self.keys_first = KeyPriority()
        super().__init__(ansi_color=True if colours.few else None)
        self.settings = screen
        self.appearance = Appearance(self, colours, environ)
        self.attention = Attention(self, environ)
        attend(self.attention)
        self.dash = dash
        self.panel = DashPanel(dash, self._act)

    def get_driver_class(self) -> type[Driver]:
        return TerminalDriver

    def get_default_screen(self) -> Screen[object]:
        return ReplScreen(self.keys_first)

    def compose(self) -> ComposeResult:
        yield self.panel

    def on_mount(self) -> None:
        if isinstance(self._driver, TerminalDriver):
            self._driver.keys_first = self.keys_first
        self.appearance.ask_background(self._driver)
        self.attention.session_is("dash", self._driver, headless=self.is_headless)
        self.panel.focus()
        self.set_interval(_AGES_S, self.panel.refresh_rows)
        self._follow()

    def on_terminal_driver_background_report(self, event: TerminalDriver.BackgroundReport) -> None:
        self.appearance.background_is(event.colour)

    @property
    def bug(self) -> Exception | None:
        return self._exception

    def _print_error_renderables(self) -> None:
        """Print nothing: Textual would show the values of variables."""
        self._exit_renderables.clear()

    def on_unmount(self) -> None:
        self.attention.restore()

    @work(group="follow")
    async def _follow(self) -> None:
        async with aclosing(self.dash.changes()) as changes:
            async for _ in changes:
                asking = sum(each.asks for each in self.dash.rows())
                self.attention.state_is(f"{asking} waiting" if asking else "", "")
                if self.dash.newly_asking():
                    self.attention.ring("permission_prompt", silent=False)
                self.panel.refresh_rows()

    # What the person does.

    def action_leave(self) -> None:
        self.exit(None)

    def action_go_to_card(self) -> None:
        for desk in self.query(QuestionDesk):
            desk.come()

    def action_suspend_process(self) -> None:
        if isinstance(self._driver, TerminalDriver):
            self._driver.suspend_process()

    def _act(self, action: str, entry: Entry, given: str) -> None:
        if isinstance(entry, HostWatch):
            self.exit(DashChoice(entry, directory=given or "~" if action == "new" else ""))
            return
        actions: Mapping[str, tuple[str, Callable[[DashRow], Awaitable[None]]]] = {
            "answer": ("Fetching the question …", self._answer),
            "logs": ("Reading …", self._show_log),
            "ports": ("Looking …", self._show_ports),
            "stop": ("Stopping …", self._stop),
            "rename": ("Renaming …", partial(self._rename, title=given)),
        }
        driven = entry.session.driver.raw and not entry.session.driver_away
        if action == "new":
            self.exit(DashChoice(entry.host, directory=given or "~"))
        elif action == "answer" and not entry.asks:
            self._say("This session asks nothing.")
        elif action == "open" or (action == "answer" and not driven):  # its model needs a driver after the answer
            self.exit(DashChoice(entry.host, entry.session.session))
        elif not entry.host.up:  # a login would ask on a screen that is not its own
            self._say(f"{one_line(entry.host.name)} does not answer: {entry.host.problem}")
        else:
            text, begin = actions[action]
            self._doing(text, begin(entry))

    def _say(self, text: str) -> None:
        self.dash.said = text
        self.panel.refresh_rows()

    def _doing(self, text: str, doing: Awaitable[None]) -> None:
        self._say(text)
        self.run_worker(self._told(doing), group="doing", exclusive=True)

    async def _told(self, doing: Awaitable[None]) -> None:
        try:
            await doing
        except CcbError as error:
            self._say(f"{error.what}. {error.do}")

    async def _stop(self, row: DashRow) -> None:
        await (await row.host.connection.sessions()).stop(row.session.session)
        self._say("Stopped.")

    async def _rename(self, row: DashRow, title: str) -> None:
        await (await row.host.connection.sessions()).rename(row.session.session, title)
        self._say("Renamed.")

    async def _show_log(self, row: DashRow) -> None:
        said = await (await row.host.connection.sessions()).last_said(row.session.session)
        self.panel.below = [each.cell for each in said[-_LOG_LINES:]] or ["Nothing was said yet."]
        self._say("Esc closes the log.")

    async def _show_ports(self, row: DashRow) -> None:
        from ..ports.port_forwards import PortForwards

        async with (
            view_session(row.host.connection, row.session.session) as session,
            PortForwards(session, {}) as ports,
        ):
            await session.earlier(1, 1)  # the page comes behind the ports
            lines = [one_line(ports.shown(each)) for each in sorted(ports.listening)]
        self.panel.below = lines or ["No program of this session listens on a port."]
        self._say("Enter opens the session, whose /ports forwards them. Esc closes the list.")

    async def _answer(self, row: DashRow) -> None:
        """Answer a question without driving the session."""
        async with view_session(row.host.connection, row.session.session, answers=True) as session:
            if "viewer_answers" not in session.hello.capabilities:
                self._say("The worker of this session is too old to be answered from here: Enter opens it.")
                return
            session.register(CAN_USE_TOOL)
            desk = QuestionDesk(session, f"{row.host.name}:{row.session.cwd.cell}", self.settings.keymap)
            await self.mount(desk)
            try:
                self._say("Esc leaves the question open.")
                self._say(await desk.answered())
            finally:
                await desk.remove()
                self.panel.focus()

    def on_question_card_left(self) -> None:
        sent = any(desk.was_answered for desk in self.query(QuestionDesk))
        self.workers.cancel_group(self, "doing")
        self._say("Answered, but the host has not confirmed it." if sent else "The question stays open.")
