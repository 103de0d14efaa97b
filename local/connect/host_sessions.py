"""The sessions of a host: listed, renamed, removed. pydantic (60 ms) is loaded by the first question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import CcbError, ProtocolError, UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.transports.pipe import Transport

if TYPE_CHECKING:
    from .session_rows import Row, SessionRow
    from .startup import LoadedBasics

_MAX_ABOUT_ONE = 10_000  # reports
_SAID_LINES = 60
_REMOVAL_S = 5.0
_SAID = ("prompt: ", "agent: ", "call ", "asks to use ", "turn failed")


class HostSessions:
    """The sessions of the host at the other end of a transport. Every method may raise CcbError."""

    def __init__(self, transport: Callable[[], Awaitable[Transport]], basics: LoadedBasics) -> None:
        self._transport = transport
        self._bundle, self._settings = basics.bundle, basics.settings

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
        if not await self._done({"command": "rename", "session": session, "title": title}, "renamed"):
            raise ProtocolError("the host did not name the session", do="Try it again.")

    async def stop(self, session: str) -> None:
        if not await self._done({"command": "stop", "session": session}, "stopped"):
            raise UsageError("the session could not be stopped", do="`ccb logs` shows what it does.")

    async def remove(self, row: SessionRow) -> None:
        """Stop a session and remove it. If nobody drives it in `row`, but somebody does now, refuse that."""
        command = {"command": "remove", "session": row.session, "driven": bool(row.driver)}
        if not await self._done(command, "removed"):
            raise UsageError("the session is still there: a process on the host has it open", do="Try it again.")

    async def remove_old(self, older_s: float) -> None:
        """Remove ended sessions that nobody has used for so long. Without an answer in time, the next session does."""
        with suppress(CcbError, TimeoutError):
            async with asyncio.timeout(_REMOVAL_S):
                await self._done({"command": "gc", "dry_run": False, "older_than_s": older_s}, "removed")

    async def _done(self, command: Mapping[str, object], kind: str) -> bool:
        """Run a command. Return whether the host has reported something of this kind."""
        from .session_rows import ReportRow

        return bool(await self._rows(command, kind, ReportRow))

    async def _rows(self, command: Mapping[str, object], kind: str, shape: type[Row]) -> list[Row]:
        from .session_rows import rows_of

        transport = await self._transport()
        return await rows_of(transport, self._bundle, command, kind, shape, _MAX_ABOUT_ONE, self._settings)
