"""An HTTP proxy that knows CONNECT, and says every name is on 127.0.0.1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class ConnectProxy:
    """`requests` are the head lines it got; with `refuse` it answers that status to every CONNECT."""

    url: str = ""
    requests: list[list[str]] = field(default_factory=list)
    refuse: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            self.requests.append(head)
            method, target, _ = head[0].split(" ")
            if method != "CONNECT" or self.refuse:
                writer.write(f"HTTP/1.1 {self.refuse or 405} No\r\ncontent-length: 0\r\n\r\n".encode())
                await writer.drain()
                return
            there, back = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()


@asynccontextmanager
async def connect_proxy(*, refuse: int = 0) -> AsyncIterator[ConnectProxy]:
    proxy = ConnectProxy(refuse=refuse)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(proxy.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
