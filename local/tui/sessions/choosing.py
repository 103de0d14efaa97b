"""The commands /new and /resume: another session of the same host on the screen, over the same connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import work
from textual.containers import Vertical

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.kinds.commands import RENAME_SESSION
from ccb.tunnel.wire.requests import Request

from ...session.client import LinkState, SessionClient
from ..model.blocks import Level
from ..model.error_display import ErrorDisplay
from ..model.transcript_reducer import TranscriptReducer
from ..widgets.composer import Composer
from .switching import NextSession, Switching

if TYPE_CHECKING:
    from ...connect.session_list import HostSessions
    from .picker import SessionPicker


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
        from .panel import SessionPanel
        from .picker import SessionPicker

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
        if self._client.state not in (LinkState.CONNECTED, LinkState.FENCED):
            key = self._composer.keymap.name("retry")
            self._reducer.notice(f"There is no connection now, so this session stays: {key} connects.", Level.WARNING)
            return False
        return True

    def _go(self, following: NextSession) -> None:
        assert self.switching is not None
        self.switching.go_to(following)
