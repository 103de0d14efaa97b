"""Answers the model calls of an agent of others: what it sends to the relay on the host comes here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.http_front import HttpFront
from ccb.tunnel.secret import Secret
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.channels import ChannelError

from ..session.remote_session import RemoteSession
from .port_forwards import take_connections

log = logging.getLogger(__name__)

_AGAIN_S = (0.5, 30.0)  # the first and the longest wait before the relay is asked again


@asynccontextmanager
async def agent_relay(session: RemoteSession, proxy: AuthProxy) -> AsyncIterator[None]:
    """Lend the `proxy` of a session to the agent on its host, until the end of the context. The relay is asked again
    after its worker was started again, and after this machine drives again."""
    async with HttpFront(proxy, session.warn) as front:
        serving = asyncio.create_task(_serve(session, front), name="model calls of the agent")
        try:
            yield
        finally:
            await cancelled(serving)


async def _serve(session: RemoteSession, front: HttpFront) -> None:
    wait_s = _AGAIN_S[0]

    def told(token: str) -> None:
        nonlocal wait_s
        wait_s = _AGAIN_S[0]
        front.expect(Secret(token))

    while True:
        try:
            await take_connections(session, "model", {}, told, front.connect, set())
        except ChannelError as error:
            log.info("the agent's model calls are not answered from here: %s", error)
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, _AGAIN_S[1])
