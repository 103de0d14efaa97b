"""A bare aiohttp relay in a process: what the auth proxy is compared with.

`python -m benchmarks.relay_alone SOCKET UPSTREAM` ends with its stdin."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
from aiohttp import web


async def _main(socket: str, upstream: str) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(upstream, connector=connector, auto_decompress=False) as session:

        async def relay(request: web.Request) -> web.StreamResponse:
            headers = {"x-api-key": "k", "content-length": request.headers["content-length"]}
            async with session.post(request.raw_path, data=request.content, headers=headers) as answer:
                response = web.StreamResponse(status=answer.status, headers={"content-type": answer.content_type})
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response

        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/{path:.*}", relay)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)  # as the front does
        await runner.setup()
        await web.UnixSite(runner, socket).start()
        sys.stdout.write(f"{socket}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2]))
