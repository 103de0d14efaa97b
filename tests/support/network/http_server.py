"""A real HTTP server around one handler."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serving(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    tls: ssl.SSLContext | None = None,
    address: str = "127.0.0.1",
) -> AsyncIterator[str]:
    """The URL of a server on `address` that answers every request with `handler`."""
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, 0, ssl_context=tls).start()
        port = runner.addresses[0][1]
        yield f"{'https' if tls else 'http'}://{f'[{address}]' if ':' in address else address}:{port}"
    finally:
        await runner.cleanup()
