"""Answers the model calls of an agent of others: what it sends to the relay on the host comes here."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing

from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.http_front import HttpFront
from ccb.tunnel.secret import Secret
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.channels import Channel, ChannelError

from ..session.remote_session import RemoteSession
from .port_forwards import MAX_DIGITS, carry_numbered, lines_of

log = logging.getLogger(__name__)

_MAX_TOKEN = 100
_MAX_CONNECTIONS = 40  # a worker lets 32 in; ports and shells need channels, too
_AGAIN_S = (0.5, 30.0)  # the first and the longest wait before the relay is asked again


class AgentRelay(AbstractAsyncContextManager["AgentRelay"]):
    """Lends the `proxy` of a session to the agent on its host, until the end of the context. The relay is asked again
    after its worker was started again, and after this machine drives again."""

    def __init__(self, session: RemoteSession, proxy: AuthProxy) -> None:
        self._session, self._proxy = session, proxy
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AgentRelay:
        self._serving = asyncio.create_task(self._serve(), name="model calls of the agent")
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancelled(self._serving)

    async def _serve(self) -> None:
        wait = _AGAIN_S[0]
        while True:
            try:
                async with await self._session.open_channel("relay", {}) as channel:
                    await self._answer(channel)
                    wait = _AGAIN_S[0]
            except ChannelError as error:
                log.info("the agent's model calls are not answered from here: %s", error)
            await asyncio.sleep(wait)
            wait = min(2 * wait, _AGAIN_S[1])

    async def _answer(self, channel: Channel) -> None:
        """Carry the connections of which the host tells, a number each behind the line with its token."""
        connections: set[asyncio.Task[None]] = set()
        async with AsyncExitStack() as stack:
            lines = await stack.enter_async_context(aclosing(lines_of(channel, _MAX_TOKEN)))
            token = Secret((await anext(lines, b"")).decode("ascii", "replace"))
            front: HttpFront | None = None
            stack.push_async_callback(lambda: cancelled(*connections))
            async for line in lines:
                if not line.isdigit() or len(line) > MAX_DIGITS or len(connections) >= _MAX_CONNECTIONS:
                    log.warning("a connection of the agent is ignored")
                    continue
                if front is None:  # most sessions have no such agent
                    front = HttpFront(self._proxy, token, self._session.warn)
                    await stack.enter_async_context(front)
                work = carry_numbered(self._session, int(line), front.connect)
                task = asyncio.create_task(work, name="connection of the agent")
                connections.add(task)
                task.add_done_callback(connections.discard)
