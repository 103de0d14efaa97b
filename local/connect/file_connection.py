"""The connection on which the files of a session travel: the session's own, or one beside it.

A copy is one more command on the session's connection. It never connects for the session: it waits until the session
has its connection again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ccb.tunnel.errors import ConnectError, ConnectionLost, CopyFailed, Unreachable
from ccb.tunnel.transports.pipe import Pipe, Transport

from ..session.session_client import LinkState

if TYPE_CHECKING:  # few sessions copy files
    from ..files.copying import OpenTransport

log = logging.getLogger(__name__)

_LOOK_S = 0.25
_UP = (LinkState.CONNECTED, LinkState.FENCED)
_OVER = (LinkState.LEAVING, LinkState.LOST, LinkState.CLOSED)


class FileConnection:
    """`state` returns the state of the session, `current` its transport. `log_in` opens another one without asking the
    person anything."""

    def __init__(
        self,
        state: Callable[[], LinkState],
        current: Callable[[], Transport | None],
        log_in: Callable[[], Awaitable[Transport]],
    ) -> None:
        self._state = state
        self._current = current
        self._log_in = log_in
        self._one_command = False  # the host allows one command on a connection, which is the worker

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[OpenTransport]:
        """Yield the way to the connections of one copy, and close at the end what was opened only for it."""
        own: list[Transport] = []

        async def close_own() -> None:
            while own:
                await own.pop().close()

        async def open_own() -> Transport:
            await close_own()
            try:
                own.append(await self._log_in())
            except ConnectError as error:
                if self._current() is None:
                    raise
                raise CopyFailed(
                    "the host runs one command at a time on a connection, and a second login for the copy has failed",
                    evidence=f"{error.what}\n{error.evidence}".strip(),
                    do="Copy with `ccb cp`, which can ask you; or raise MaxSessions in sshd_config on the host.",
                ) from error
            return own[-1]

        async def open_transport(again: bool) -> Transport:
            transport = await self._session_transport()
            if self._one_command or not transport.warm:
                return await open_own()
            return _Beside(transport, self._refused, open_own)

        try:
            yield open_transport
        finally:
            await close_own()

    def _refused(self) -> None:
        log.info("the host runs one command at a time on a connection: files get a connection of their own")
        self._one_command = True

    async def _session_transport(self) -> Transport:
        """Wait until the session has a connection. Raise CopyFailed if it will have none any more."""
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


class _Beside(Transport):
    """The session's transport for one more command, which it does not own. If the host refuses that command, it runs on
    a transport of its own, which `open_own` opens."""

    def __init__(
        self, transport: Transport, refused: Callable[[], None], open_own: Callable[[], Awaitable[Transport]]
    ) -> None:
        self._transport = transport
        self._refused = refused
        self._open_own = open_own

    @property
    def name(self) -> str:
        return self._transport.name

    @property
    def alive(self) -> bool:
        return self._transport.alive

    @property
    def warm(self) -> bool:
        return self._transport.warm

    async def execute(self, command: str) -> Pipe:
        try:
            return await self._transport.execute(command)
        except Unreachable as error:
            if not self._transport.alive:
                raise ConnectionLost(error.what, evidence=error.evidence) from error
        self._refused()
        self._transport = await self._open_own()
        return await self._transport.execute(command)

    def abort(self) -> None:
        """Nothing: the connection is the session's."""

    async def close(self) -> None:
        """Nothing: the connection is the session's, or is closed with the copy."""
