"""The screen of `ccb dash`. It ends with what the person wants to open, and comes back after that."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL
from ccb.tunnel.wire.dataclass import dataclass

from ..config.settings_loading import DEFAULT_SCREEN, ScreenSettings
from ..connect.connect_session import view_session
from ..dash.dash_model import Dash, DashRow, HostWatch
from .panels.dash_panel import DashPanel
from .question_desk import QuestionDesk
from .terminal_app import TerminalApp
from .terminal_driver import TerminalDriver

_AGES_S = 5.0  # seconds after which the ages are drawn again


@dataclass(frozen=True)
class DashChoice:
    """What to open: a session, a new one in `directory` if `session` is "", or with neither the login of the host."""

    host: HostWatch
    session: str = ""
    directory: str = ""


class DashApp(TerminalApp[DashChoice]):
    """Shows `dash` until the person opens something or leaves."""

    TITLE = "ccb dash"
    CSS = "Screen { layout: vertical; background: $background; overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(self, dash: Dash, environ: Mapping[str, str], screen: ScreenSettings = DEFAULT_SCREEN) -> None:
        super().__init__(environ, screen)
        self.dash = dash
        self.panel = DashPanel(dash, self._act)

    def compose(self) -> ComposeResult:
        yield self.panel

    def on_mount(self) -> None:
        self.attention.session_is("dash", self._driver, headless=self.is_headless)
        self.panel.focus()
        self.set_interval(_AGES_S, self.panel.refresh_rows)
        self._follow()

    @work(group="follow")
    async def _follow(self) -> None:
        async with aclosing(self.dash.changes()) as changes:
            async for _ in changes:
                if self.dash.newly_asking():
                    self.attention.ring("permission_prompt", silent=False)
                self.panel.refresh_rows()

    # What the person does.

    def action_suspend_process(self) -> None:
        if isinstance(self._driver, TerminalDriver):
            self._driver.suspend_process()

    def _act(self, action: str, row: DashRow, given: str) -> None:
        driven = row.session.driver.raw and not row.session.driver_away
        if action == "new":
            self.exit(DashChoice(row.host, directory=given or "~"))
        elif action == "answer" and not row.asks:
            self._say("This session asks nothing.")
        elif action == "open" or (action == "answer" and not driven):  # its model needs a driver after the answer
            self.exit(DashChoice(row.host, row.session.session))
        elif not row.host.up:  # a login would ask on a screen that is not its own
            self._say(f"{one_line(row.host.name)} does not answer: {row.host.problem}")
        else:
            self._say(f"Asking {one_line(row.host.name)} …")
            self.run_worker(self._do(action, row, given), group="doing", exclusive=True)

    def _say(self, text: str) -> None:
        self.dash.said = text
        self.panel.refresh_rows()

    async def _do(self, action: str, row: DashRow, given: str) -> None:
        session = row.session.session
        try:
            if action == "answer":
                return await self._answer(row)
            if action == "ports":
                return await self._show_ports(row)
            sessions = await row.host.connection.sessions(ask=False)
            if action == "stop":
                await sessions.stop(session)
                self._say("Stopped.")
            elif action == "rename":
                await sessions.rename(session, given)
                self._say("Renamed.")
            else:
                said = await sessions.last_said(session)
                self.panel.below = [each.cell for each in said] or ["Nothing was said yet."]
                self._say("Esc closes the log.")
        except CcbError as error:
            self._say(f"{error.what}. {error.do}")

    async def _show_ports(self, row: DashRow) -> None:
        from ..ports.port_forwards import PortForwards

        async with (
            view_session(row.host.connection, row.session.session, ask=False) as session,
            PortForwards(session, {}) as ports,
        ):
            await session.earlier(1, 1)  # the page comes behind the ports
            lines = [one_line(ports.shown(each)) for each in sorted(ports.listening)]
        self.panel.below = lines or ["No program of this session listens on a port."]
        self._say("Enter opens the session, whose /ports forwards them. Esc closes the list.")

    async def _answer(self, row: DashRow) -> None:
        """Answer a question without driving the session."""
        async with view_session(row.host.connection, row.session.session, answers=True, ask=False) as session:
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
        sent = any(desk.given for desk in self.query(QuestionDesk))
        self.workers.cancel_group(self, "doing")
        self._say("Answered, but the host has not confirmed it." if sent else "The question stays open.")
