"""The commands /new and /resume: another session of the same host on the screen, over the same connection."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import work
from textual.containers import Vertical

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.client_requests import RENAME_SESSION
from ccb.tunnel.wire.control_protocol import Request
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.arguments import Arguments, SessionChoice
from ..transcript.blocks import Level
from .composer.composer import Composer
from .widgets.session_info import ErrorDisplay

if TYPE_CHECKING:
    from ..connect.host_sessions import HostSessions
    from ..session.session_client import SessionClient
    from ..transcript.transcript_reducer import TranscriptReducer
    from .panels.session_panel import SessionPicker


class SessionChoosing(Vertical):
    """Holds the panel while the person chooses. `sessions` is None where there is only one session, as in a test."""

    DEFAULT_CSS = "SessionChoosing { height: auto; }"

    def __init__(
        self, client: SessionClient, host: str, reducer: TranscriptReducer, composer: Composer, errors: ErrorDisplay
    ) -> None:
        super().__init__()
        self._client = client
        self._host = host
        self._reducer = reducer
        self._composer = composer
        self._errors = errors
        self.sessions: HostSessions | None = None
        self.switching: Switching | None = None
        self._picker: SessionPicker | None = None

    @property
    def here(self) -> str:
        """The ID of the session on the screen."""
        return self._client.hello.session

    async def new(self) -> None:
        """Begin another session in the same directory, with the model and the mode of this one."""
        if self._may_switch():
            self._go(NextSession("", self._reducer.model, self._reducer.mode))

    async def resume(self, sought: str) -> None:
        """Let the person choose a session. What they typed after the command narrows the list; the ID of one session,
        or the start of it, opens that one."""
        if not self._may_switch() or self.sessions is None or self._picker is not None:
            return
        try:
            rows = await self.sessions.listed()
        except CcbError as error:
            self._errors.show_error(error)
            return
        named = [row for row in rows if len(sought) >= 4 and row.session.startswith(sought.lower())]
        if len(named) == 1 and named[0].session != self.here:
            self._go(NextSession(named[0].session))
            return
        from .panels.session_panel import SessionPanel, SessionPicker

        panel = SessionPanel(self._host, rows, self.here, sought, keymap=self._composer.keymap)
        self._picker = SessionPicker(self._host, self.sessions, panel)
        self._picker.here, self._picker.rename_here = self.here, self._rename
        await self.mount(self._picker)
        self._follow(self._picker)

    @work
    async def _follow(self, picker: SessionPicker) -> None:
        """Wait for what the person chooses, and go there."""
        row = await picker.chosen()
        self._picker = None
        await picker.remove()
        self._composer.focus()
        if row is not None:
            self._go(NextSession(row.session))

    async def _rename(self, title: str) -> None:
        await self._client.request(Request(RENAME_SESSION, title))

    def _may_switch(self) -> bool:
        if self.switching is None or self.sessions is None:
            self._reducer.notice("This terminal shows one session only.")
            return False
        from ..session.session_client import LinkState

        if self._client.state not in (LinkState.CONNECTED, LinkState.FENCED):
            key = self._composer.keymap.name("retry")
            self._reducer.notice(f"There is no connection now, so this session stays: {key} connects.", Level.WARNING)
            return False
        return True

    def _go(self, following: NextSession) -> None:
        assert self.switching is not None
        self.switching.go_to(following)


@dataclass(frozen=True)
class NextSession:
    """The session that comes next: an existing one, or a new one if `session` is "". A new one begins with `model` and
    `mode`, where they are not ""."""

    session: str = ""
    model: str = ""
    mode: str = ""


class Switching:
    """Tells whoever holds the connection which session the person wants next."""

    def __init__(self) -> None:
        self._next: asyncio.Queue[NextSession] = asyncio.Queue()

    def go_to(self, following: NextSession) -> None:
        """Show another session in place of this one."""
        self._next.put_nowait(following)

    async def wait(self, left: asyncio.Event) -> NextSession | None:
        """Return the next session, None once the person has `left`."""
        leaving, going = asyncio.ensure_future(left.wait()), asyncio.ensure_future(self._next.get())
        try:
            await asyncio.wait({leaving, going}, return_when=asyncio.FIRST_COMPLETED)
            return going.result() if going.done() and not leaving.done() else None
        finally:
            for each in (leaving, going):
                each.cancel()
            await asyncio.gather(leaving, going, return_exceptions=True)


def arguments_for(following: NextSession, arguments: Arguments, cwd: str) -> Arguments:
    """Return the arguments of the run for the session that the person wants next. `cwd` is the directory of the one
    before, in which a new session works, too."""
    patience = arguments.session.reconnect_timeout
    choice = SessionChoice(resume=following.session or None, reconnect_timeout=patience)
    agent = arguments.agent
    if following.session:  # an existing session has a model and a mode
        agent = replace(agent, model=None, permission_mode=None, dangerously_skip_permissions=False)
    else:
        bypass = agent.allow_bypass or agent.dangerously_skip_permissions
        agent = replace(agent, model=following.model or agent.model, permission_mode=following.mode or None)
        agent = replace(agent, allow_bypass=bypass, dangerously_skip_permissions=False)
    directory = None if following.session else cwd
    return replace(arguments, prompt=None, session=choice, agent=agent, directory=directory)
