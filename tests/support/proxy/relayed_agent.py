"""The HTTP front of the auth proxy with a listener in place of the relay: what an agent of others sees."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.http_front import HttpFront
from ccb.tunnel.secret import Secret

TOKEN = "token-of-the-relay"


@asynccontextmanager
async def relayed(proxy: AuthProxy, warn: Callable[[str], None] = print) -> AsyncIterator[str]:
    """Yield the address that the agent is given."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async with HttpFront(proxy, warn) as front:
        front.expect(Secret(TOKEN))

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            answers, requests = await front.connect()
            await asyncio.gather(pipe(reader, requests), pipe(answers, writer))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/{TOKEN}"
            server.close_clients() if hasattr(server, "close_clients") else None
