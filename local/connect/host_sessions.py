"""The sessions of a host: listed, renamed, removed. pydantic (60 ms) is loaded by the first question."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import CcbError, ProtocolError, UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.transports.pipe import Transport

if TYPE_CHECKING:
    from .session_rows import Row, SessionRow

log = logging.getLogger(__name__)
_MAX_ABOUT_ONE = 10_000  # reports
_SAID_LINES = 60
_SAID = ("prompt: ", "agent: ", "call ", "asks to use ", "turn failed")


class HostSessions:
    """The sessions of the host at the other end of a transport. Every method may raise CcbError."""

    def __init__(self, transport: Callable[[], Awaitable[Transport]], bundle: Bundle) -> None:
        self._transport = transport
        self._bundle = bundle

    async def reached(self) -> tuple[Transport, Bundle]:
        """Return the transport, connected, and the worker that runs commands over it."""
        return await self._transport(), self._bundle

    async def listed(self) -> Sequence[SessionRow]:
        from .session_rows import list_sessions

        return await list_sessions(await self._transport(), self._bundle)

    async def last_said(self, session: str) -> Sequence[HostText]:
        from .session_rows import SaidRow

        rows = await self._rows({"command": "logs", "session": session, "lines": _SAID_LINES}, "log", SaidRow)
        return [row.text for row in rows if row.source != "worker" and row.text.raw.startswith(_SAID)]

    async def rename(self, session: str, title: str) -> None:
        from .session_rows import ReportRow

        if not await self._rows({"command": "rename", "session": session, "title": title}, "renamed", ReportRow):
            raise ProtocolError("the host did not name the session", do="Try it again.")

    async def stop(self, session: str) -> None:
        from .session_rows import ReportRow

        if not await self._rows({"command": "stop", "session": session}, "stopped", ReportRow):
            raise UsageError("the session could not be stopped", do="`ccb logs` shows what it does.")

    async def remove(self, row: SessionRow) -> None:
        """Stop a session and remove it. If nobody drives it in `row`, but somebody does now, refuse that."""
        from .session_rows import ReportRow

        command = {"command": "remove", "session": row.session, "driven": bool(row.driver)}
        if not await self._rows(command, "removed", ReportRow):
            raise UsageError("the session is still there: a process on the host has it open", do="Try it again.")

    async def remove_old(self, older_s: float) -> None:
        """Remove ended sessions that nobody has used for so long. A failure is logged: the next session tries again."""
        from .session_rows import ReportRow

        try:
            await self._rows({"command": "gc", "dry_run": False, "older_than_s": older_s}, "removed", ReportRow)
        except CcbError as error:
            log.warning("old sessions were not removed: %s", error)

    async def _rows(self, command: Mapping[str, object], kind: str, shape: type[Row]) -> list[Row]:
        from .session_rows import reports, row_of

        transport = await self._transport()
        async with aclosing(reports(transport, self._bundle, command, _MAX_ABOUT_ONE)) as answer:
            return [row_of(shape, each.body, transport.name) async for each in answer if each.kind == kind]
