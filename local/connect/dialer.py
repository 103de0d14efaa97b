"""Start the worker of one session over the connection to its host. Each link has its own nonce."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from ccb.deploy.bootstrap import Launched, launch
from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import ConnectionLost, CopyFailed, DeployError, Dropped, KeptElsewhere, NodeGone
from ccb.tunnel.link.link import Greeting, Link
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.dataclass import dataclass

from ..session.dialing import KnownSession, WorkerConnection

if TYPE_CHECKING:
    from ccb.tunnel.proxy.auth_proxy import AuthProxy

    from ..session.session_client import LinkState
    from .host_connection import HostConnection


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
    """Dials one session. Call `begin`, then `dial`, and `aclose` at the end. A transport that would log in for each
    command is not shared: it belongs to the session."""

    def __init__(self, host: HostConnection, bundle: Bundle) -> None:
        self._parameters: Parameters = {}
        self._host = host
        self._bundle = bundle
        self._own: Transport | None = None
        self._node: Transport | None = None  # to the node of the session, if the login has reached another one
        self._early: tuple[Transport, asyncio.Task[Launched]] | None = None
        self._tried = False

    @property
    def current(self) -> Transport | None:
        """The transport of the session now. None between two connections."""
        return self._node if self._node is not None and self._node.alive else self._login

    @property
    def _login(self) -> Transport | None:
        if self._own is not None:
            return self._own if self._own.alive else None
        return self._host.current

    def begin(self, parameters: Parameters) -> None:
        """Start the worker now; `dial` takes it. `parameters` say how it finds or creates the session."""
        self._parameters = parameters
        transport = self._login
        if transport is not None:
            launching = launch(transport, self._parameters_for(None), self._bundle)
            self._early = transport, asyncio.create_task(launching, name="start the worker")
            self._tried = True

    async def aclose(self) -> None:
        if self._early is not None:
            await _give_up(self._early[1])
        if self._own is not None:
            await self._own.close()

    async def transport(self, *, ask: bool) -> Transport:
        """Return the transport of the session, a new one if it is not alive. Raises CcbError."""
        if self._own is not None and not self._own.alive:
            await self._drop_own()
        if self._own is None:
            shared = await self._host.transport(ask=ask)
            if shared.warm:
                return shared
            if self._own is None:
                self._own = self._host.take(shared)
        return self._own

    @asynccontextmanager
    async def dial(
        self, proxy: AuthProxy | None, known: KnownSession | None, ask: bool
    ) -> AsyncIterator[WorkerConnection]:
        """Connect to the worker. Without a proxy, its model calls are not answered."""
        parameters = self._parameters_for(known)
        self._tried, self._node = True, None
        async with AsyncExitStack() as stack:
            prepare = proxy.prepare if proxy is not None else lambda: None
            waiting = asyncio.get_running_loop().call_later(_SENT_S, prepare)
            try:
                transport, link, hello = await self._hello(parameters, stack, known=known is not None, ask=ask)
            except KeptElsewhere as kept:
                transport, link, hello = await self._hello_of_node(kept, parameters, stack, ask=ask)
            finally:
                waiting.cancel()
            log.info("hello from worker pid %d of session %s", hello.pid, hello.session)
            async with self._host.carrying(transport, link):
                yield WorkerConnection(link, hello, proxy, stack)

    async def _hello(
        self, parameters: Parameters, stack: AsyncExitStack, *, known: bool, ask: bool
    ) -> tuple[Transport, Link, Greeting]:
        """Start the worker's bridge and wait for its hello. A transport that does not work is replaced, once."""
        if known and self._own is not None:
            await self._drop_own()  # a new transport would log in again and ask the person
        transport = self._login if known else None
        if transport is not None:
            try:
                async with asyncio.timeout(WARM_HELLO_S):
                    return await self._start(transport, parameters, stack)
            except (TimeoutError, ConnectionLost, Dropped, DeployError) as error:
                log.info("the existing transport does not work: %s", error)
                if not await self._host.give_up(transport):
                    if isinstance(error, TimeoutError):
                        raise ConnectionLost("the worker did not say hello in time") from error
                    raise
        return await self._start(await self.transport(ask=ask), parameters, stack)

    async def _hello_of_node(
        self, kept: KeptElsewhere, parameters: Parameters, stack: AsyncExitStack, *, ask: bool
    ) -> tuple[Transport, Link, Greeting]:
        from .nodes import node_of, says_so

        login, settings = await self.transport(ask=ask), (await self._host.loader.loaded()).settings
        try:
            with node_of(kept, login, settings) as there:
                found = await self._start(there, parameters, stack)
            self._node = there
            return found
        except NodeGone as gone:
            given_up = self._host.arguments.host_command.take_over_node
            if kept.node is None or not (given_up or (ask and await says_so(gone, self._host.prompts))):
                raise
        return await self._start(login, {**parameters, "take_over": kept.node.boot}, stack)

    async def _start(
        self, transport: Transport, parameters: Parameters, stack: AsyncExitStack
    ) -> tuple[Transport, Link, Greeting]:
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
            return transport, link, hello

    async def _drop_own(self) -> None:
        transport, self._own = self._own, None
        if transport is not None:
            transport.abort()
            await transport.close()

    def _parameters_for(self, known: KnownSession | None) -> dict[str, object]:
        """Return the parameters for the stub. After the first attempt, take a worker that a broken one has started."""
        if known is None:
            return {**self._parameters, "fresh": False} if self._tried else dict(self._parameters)
        lasting = "grace_s", "idle_s", "shell", "job"
        kept = {name: value for name, value in self._parameters.items() if name in lasting}
        create = bool(self._parameters.get("create")) and not known.begun
        if known.hello.storage == "memory":
            kept["in_memory"] = True
        return {"session": known.hello.session, "cwd": known.hello.cwd.raw, "create": create, "again": True, **kept}


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
