"""The connection on which the files of a session travel: one more command on the session's, which it waits for. A
transport that would log in for each command gets a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CopyFailed
from ccb.tunnel.transports.pipe import Transport

from ..session.session_client import LinkState

if TYPE_CHECKING:  # few sessions copy files
    from ..files.copying import OpenTransport

_LOOK_S = 0.25
_UP = (LinkState.CONNECTED, LinkState.FENCED)
_OVER = (LinkState.LEAVING, LinkState.LOST, LinkState.CLOSED)


class FileConnection:
    """`log_in` opens another connection without asking the person anything."""

    def __init__(
        self,
        state: Callable[[], LinkState],
        current: Callable[[], Transport | None],
        log_in: Callable[[], Awaitable[Transport]],
    ) -> None:
        self._state = state
        self._current = current
        self._log_in = log_in

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[OpenTransport]:
        """Yield the way to the connections of one copy, and close at the end what was opened only for it."""
        own: list[Transport] = []

        async def open_transport(again: bool) -> Transport:
            transport = await self._session_transport()
            if transport.warm:
                return transport
            while own:
                await own.pop().close()
            own.append(await self._log_in())
            return own[-1]

        try:
            yield open_transport
        finally:
            while own:
                await own.pop().close()

    async def _session_transport(self) -> Transport:
        while True:
            state, transport = self._state(), self._current()
            if state in _OVER:
                raise CopyFailed(
                    "the copy was broken off: the session has no connection any more",
                    do="Come back to the session and give the same command again: it goes on where it broke off.",
                )
            if state in _UP and transport is not None:
                return transport
            await asyncio.sleep(_LOOK_S)
