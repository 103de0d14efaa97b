"""The commands /new and /resume: another session of the same host on the screen, over the same connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from textual.containers import Vertical

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.requests import RequestFailed

from ...session.client import LinkState, SessionClient
from ..model.blocks import Level
from ..model.transcript_reducer import TranscriptReducer
from ..widgets.composer import Composer
from .switching import NextSession, Switching

if TYPE_CHECKING:
    from ...connect.session_list import SessionRow
    from .panel import SessionPanel

ListSessions = Callable[[], Awaitable[Sequence["SessionRow"]]]
"""Returns the sessions of the host, the most recently used first. Raises CcbError."""


class Errors(Protocol):
    """Shows what went wrong."""

    def show_error(self, error: CcbError | RequestFailed) -> None: ...


class SessionChoosing(Vertical):
    """Holds the panel while the person chooses. `listed` is None where there is only one session, as in a test."""

    DEFAULT_CSS = "SessionChoosing { height: auto; }"

    def __init__(
        self, client: SessionClient, host: str, reducer: TranscriptReducer, composer: Composer, errors: Errors
    ) -> None:
        super().__init__()
        self._client = client
        self._host = host
        self._reducer = reducer
        self._composer = composer
        self._errors = errors
        self.listed: ListSessions | None = None
        self.switching: Switching | None = None
        self.panel: SessionPanel | None = None

    async def new(self) -> None:
        """Begin another session in the same directory, with the model and the mode of this one."""
        if self._may_switch():
            self._go(NextSession("", self._reducer.model, self._reducer.mode))

    async def resume(self, sought: str) -> None:
        """Let the person choose a session. What they typed after the command narrows the list; the ID of one session,
        or the start of it, opens that one."""
        if not self._may_switch() or self.listed is None or self.panel is not None:
            return
        try:
            rows = await self.listed()
        except CcbError as error:
            self._errors.show_error(error)
            return
        named = [row for row in rows if len(sought) >= 4 and row.session.startswith(sought.lower())]
        if len(named) == 1 and named[0].session != self._client.hello.session:
            self._go(NextSession(named[0].session))
            return
        from .panel import SessionPanel

        self.panel = SessionPanel(self._host, rows, self._client.hello.session, sought)
        await self.mount(self.panel)
        self.panel.focus()

    async def on_session_panel_session_chosen(self, event: SessionPanel.SessionChosen) -> None:
        await self._close()
        self._go(NextSession(event.row.session))

    async def on_session_panel_list_closed(self) -> None:
        await self._close()

    async def _close(self) -> None:
        panel, self.panel = self.panel, None
        if panel is not None:
            await panel.remove()
        self._composer.focus()

    def _may_switch(self) -> bool:
        if self.switching is None or self.listed is None:
            self._reducer.notice("This terminal shows one session only.")
            return False
        if self._client.state not in (LinkState.CONNECTED, LinkState.FENCED):
            self._reducer.notice("There is no connection now, so this session stays: Alt+R connects.", Level.WARNING)
            return False
        return True

    def _go(self, following: NextSession) -> None:
        assert self.switching is not None
        self.switching.go_to(following)
