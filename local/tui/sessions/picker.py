"""Lets the person choose a session of a host, and names and deletes sessions for them meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from textual import work
from textual.containers import Vertical

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.requests import RequestFailed

from ...connect.session_list import HostSessions, SessionRow
from .panel import SessionPanel

_SETTLE_S = 0.15
"""Seconds that the mark rests on a session before its preview is fetched."""


class SessionPicker(Vertical):
    """Shows the panel until the person has chosen. `rename_here` names the session on the screen, which knows itself
    what it is called."""

    DEFAULT_CSS = "SessionPicker { height: auto; }"

    def __init__(self, host: str, sessions: HostSessions, panel: SessionPanel) -> None:
        super().__init__()
        self._host = host
        self._sessions = sessions
        self.panel = panel
        self.here = ""
        self.rename_here: Callable[[str], Awaitable[object]] | None = None
        self._chosen: asyncio.Future[SessionRow | None] = asyncio.get_running_loop().create_future()

    def on_mount(self) -> None:
        self.mount(self.panel)
        self.panel.focus()

    def on_unmount(self) -> None:
        self._choose(None)

    async def chosen(self) -> SessionRow | None:
        """Return the session that the person has chosen, None if they want none."""
        return await self._chosen

    def on_session_panel_session_chosen(self, event: SessionPanel.SessionChosen) -> None:
        event.stop()
        self._choose(event.row)

    def on_session_panel_list_closed(self, event: SessionPanel.ListClosed) -> None:
        event.stop()
        self._choose(None)

    def _choose(self, row: SessionRow | None) -> None:
        if not self._chosen.done():
            self._chosen.set_result(row)

    @work(exclusive=True, group="preview")
    async def on_session_panel_preview_wanted(self, event: SessionPanel.PreviewWanted) -> None:
        event.stop()
        await asyncio.sleep(_SETTLE_S)
        try:
            said = [each.cell for each in await self._sessions.last_said(event.row.session)]
        except CcbError as error:
            said = [error.what]
        self.panel.preview(event.row.session, said)

    @work(group="change")
    async def on_session_panel_renamed(self, event: SessionPanel.Renamed) -> None:
        event.stop()
        session, title = event.row.session, event.title

        async def rename() -> None:
            if session == self.here and self.rename_here is not None:
                if not title:
                    raise RequestFailed("a session on the screen needs a name")
                await self.rename_here(title)
            else:
                await self._sessions.rename(session, title)
            self.panel.renamed(session, title)

        await self._done(rename)

    @work(group="change")
    async def on_session_panel_deleted(self, event: SessionPanel.Deleted) -> None:
        event.stop()

        async def delete() -> None:
            await self._sessions.remove(event.row)
            self.panel.gone(event.row.session)

        await self._done(delete)

    async def _done(self, change: Callable[[], Awaitable[None]]) -> None:
        try:
            await change()
        except CcbError as error:
            self.panel.failed(f"{error.what}. {error.do}")
        except RequestFailed as error:
            self.panel.failed(str(error))
