"""An upstream that costs little: throws the request away and answers what the query says. Runs as its own process.

`/v1/messages?bytes=N` answers N bytes; `?events=N&gap=MS` answers N timestamped SSE events, MS milliseconds apart."""

from __future__ import annotations

import asyncio
import sys
import time
from urllib.parse import parse_qs, urlsplit

_PIECE = (b"data: " + b"x" * 120 + b"\n\n") * 512  # events, of which 512 are 64 KB


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            await _answer(reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    left = int(headers.get("content-length", 0))
    while left:
        left -= len(await reader.read(min(left, 1 << 20)) or _gone())
    query = parse_qs(urlsplit(lines[0].split(" ")[1]).query)
    size, events, gap = (int(query.get(name, ["0"])[0]) for name in ("bytes", "events", "gap"))
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for number in range(events):
        if number and gap:
            await asyncio.sleep(gap / 1000)
        if writer.is_closing():
            _gone()
        event = f"data: {time.monotonic_ns()}\n\n".encode()
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
    while size > 0:
        piece = _PIECE[:size]
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
        size -= len(piece)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _gone() -> bytes:
    raise ConnectionResetError


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main())
