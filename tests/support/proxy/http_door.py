"""Model calls of the auth proxy over HTTP, for clients that are no workers: official SDKs and load generators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.policy import RequestHead

from .proxy_client import body_of, guard


@asynccontextmanager
async def http_door(proxy: AuthProxy, path: Path) -> AsyncIterator[Path]:
    """Serve the calls of `proxy` on a Unix socket at `path`. Each request brings NONCE in `x-auth-nonce`."""
    connection = guard()

    async def handle(request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        given = headers.pop("x-auth-nonce", "")
        head = RequestHead("", given, request.method, request.raw_path, headers, request.content_length or 0)
        async with proxy.call(head, request.content.iter_any(), nonce=connection) as response:
            answer = web.StreamResponse(status=response.status, headers=dict(response.headers))
            await answer.prepare(request)
            async for piece in body_of(response):
                await answer.write(piece)
            return answer

    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", handle)
    path.parent.mkdir(parents=True, exist_ok=True)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(path)).start()
        yield path
    finally:
        await runner.cleanup()
