"""Start the worker over a transport, which is kept while it lives and lent to copies. Each link has its own nonce."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from ccb.deploy.bootstrap import Launched, launch
from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import CcbError, ConnectionLost, CopyFailed, DeployError, Dropped
from ccb.tunnel.link.link import Greeting, Link
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.dataclass import dataclass

from ..session.dialing import KnownSession, WorkerConnection

if TYPE_CHECKING:
    from ccb.tunnel.proxy.auth_proxy import AuthProxy

    from ..session.session_client import LinkState


log = logging.getLogger(__name__)

WARM_HELLO_S = 5.0  # seconds to wait for the hello over an existing transport before making a new transport
_SENT_S = 0.02  # longer than it takes to send the command line. After that this machine waits for the worker.

Parameters = Mapping[str, object]
OpenTransport = Callable[[bool], Awaitable[Transport]]
"""Connects, logs in and returns the transport; the argument says whether it may ask the person. Raises CcbError."""
_LOOK_S = 0.25


async def _give_up(launching: asyncio.Task[Launched]) -> None:
    await cancelled(launching)
    if not launching.cancelled() and launching.exception() is None:
        await launching.result().pipe.close()


class Dialer:
    """Dials one session, the first time over `transport`. Call `begin`, then `dial`, and `aclose` at the end."""

    def __init__(self, open_transport: OpenTransport, bundle: Bundle, transport: Transport | None = None) -> None:
        self._parameters: Parameters = {}
        self.open_transport = open_transport
        self._bundle = bundle
        self._transport = transport
        self._early: tuple[Transport, asyncio.Task[Launched]] | None = None
        self._opening = asyncio.Lock()
        self._tried = False

    @property
    def current(self) -> Transport | None:
        """The transport of the session now. None between two connections."""
        return self._transport if self._transport is not None and self._transport.alive else None

    def release(self) -> Transport | None:
        transport, self._transport = self._transport, None
        return transport

    def begin(self, parameters: Parameters) -> None:
        """Start the worker now; `dial` takes it. `parameters` say how it finds or creates the session."""
        assert self._transport is not None
        self._parameters = parameters
        launching = launch(self._transport, self._parameters_for(None), self._bundle)
        self._tried = True
        self._early = self._transport, asyncio.create_task(launching, name="start the worker")

    async def aclose(self) -> None:
        if self._early is not None:
            await _give_up(self._early[1])
        transport = self.release()
        if transport is not None:
            await transport.close()

    async def transport(self, *, ask: bool) -> Transport:
        """Return the one transport to the host, a new one if it is not alive. Raises CcbError."""
        async with self._opening:
            if self._transport is not None and not self._transport.alive:
                await self._drop_transport()
            if self._transport is None:
                self._transport = await self.open_transport(ask)
            return self._transport

    @asynccontextmanager
    async def dial(
        self, proxy: AuthProxy | None, known: KnownSession | None, ask: bool
    ) -> AsyncIterator[WorkerConnection]:
        parameters = self._parameters_for(known)
        self._tried = True
        async with AsyncExitStack() as stack:
            prepare = proxy.prepare if proxy is not None else lambda: None
            waiting = asyncio.get_running_loop().call_later(_SENT_S, prepare)
            try:
                link, hello = await self._hello(parameters, stack, warm=known is not None, ask=ask)
            finally:
                waiting.cancel()
            log.info("hello from worker pid %d of session %s", hello.pid, hello.session)
            try:
                yield WorkerConnection(link, hello, proxy, stack)
            except (CcbError, asyncio.CancelledError):
                if link.silent:
                    await self._drop_transport()
                raise

    async def _hello(
        self, parameters: Parameters, stack: AsyncExitStack, *, warm: bool, ask: bool
    ) -> tuple[Link, Greeting]:
        """Start the worker's bridge and wait for its hello. A transport that does not work is replaced, once."""
        if warm and self._transport is not None and not self._transport.warm:
            await self._drop_transport()  # a new transport would log in again and ask the person
        if warm and self._transport is not None and self._transport.alive:
            try:
                async with asyncio.timeout(WARM_HELLO_S):
                    return await self._start(self._transport, parameters, stack)
            except TimeoutError:
                log.info("the existing transport does not answer")
            except (ConnectionLost, Dropped, DeployError) as error:
                log.info("the existing transport does not work: %s", error.what)
            await self._drop_transport()
        return await self._start(await self.transport(ask=ask), parameters, stack)

    async def _start(
        self, transport: Transport, parameters: Parameters, stack: AsyncExitStack
    ) -> tuple[Link, Greeting]:
        async with AsyncExitStack() as attempt:
            try:
                early, self._early = self._early, None
                if early is not None and early[0] is transport:
                    launched = await early[1]
                else:
                    if early is not None:
                        await _give_up(early[1])
                    launched = await launch(transport, parameters, self._bundle)
                link = await attempt.enter_async_context(Link(launched.pipe, launched.rest, host=transport.name))
                hello = await link.hello()
            except DeployError as error:
                if isinstance(error.__cause__, ConnectionLost) and not transport.alive:
                    raise Dropped(error.what, evidence=error.evidence, do=error.do) from error
                raise
            stack.push_async_exit(attempt.pop_all())
            return link, hello

    async def _drop_transport(self) -> None:
        transport = self.release()
        if transport is not None:
            transport.abort()
            await transport.close()

    def _parameters_for(self, known: KnownSession | None) -> dict[str, object]:
        """Return the parameters for the stub. After the first attempt, take a worker that a broken one has started."""
        if known is None:
            return {**self._parameters, "fresh": False} if self._tried else dict(self._parameters)
        kept = {name: self._parameters[name] for name in ("grace_s", "idle_s", "shell") if name in self._parameters}
        create = bool(self._parameters.get("create")) and not known.begun
        if known.hello.storage == "memory":
            kept["in_memory"] = True
        return {"session": known.hello.session, "cwd": known.hello.cwd.raw, "create": create, "again": True, **kept}


class SpareTransport:
    """Keeps the transport between two sessions. Use with `async with`; it closes what it keeps."""

    def __init__(self) -> None:
        self._transport: Transport | None = None

    async def __aenter__(self) -> SpareTransport:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._transport is not None:
            await self._transport.close()

    def keep(self, dialer: Dialer) -> None:
        self.put(dialer.release())

    def put(self, transport: Transport | None) -> None:
        self._transport = transport

    async def take(self) -> Transport | None:
        transport, self._transport = self._transport, None
        if transport is not None and not transport.alive:
            await transport.close()
            return None
        return transport


@dataclass(frozen=True)
class FileConnection:
    """The connection on which the files of a session travel: one more command on the session's, which it waits for. A
    transport that would log in for each command gets a connection of its own from `log_in`, which asks nobody."""

    _state: Callable[[], LinkState]
    _current: Callable[[], Transport | None]
    _log_in: Callable[[], Awaitable[Transport]]

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
        from ..session.session_client import LinkState  # the worker is started without it

        while True:
            state, transport = self._state(), self._current()
            if state in (LinkState.LEAVING, LinkState.LOST, LinkState.CLOSED):
                raise CopyFailed(
                    "the copy was broken off: the session has no connection any more",
                    do="Come back to the session and give the same command again: it goes on where it broke off.",
                )
            if state in (LinkState.CONNECTED, LinkState.FENCED) and transport is not None:
                return transport
            await asyncio.sleep(_LOOK_S)
