"""An upstream that costs little: throws the request away and answers what the query says. Runs as its own process.

`/v1/messages?bytes=N` answers N bytes; `?events=N&gap=MS` answers N timestamped SSE events, MS milliseconds apart. With
`&whole=1` they are the deltas of a message that tells its usage, so that the call is paid for."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import parse_qs, urlsplit

_PIECE = (b"data: " + b"x" * 120 + b"\n\n") * 512  # events, of which 512 are 64 KB
_DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "some words of it "}}


def _event(**body: object) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode()


def _message_around(events: int) -> tuple[bytes, bytes]:
    """What comes before and after the deltas of a message."""
    usage = {"input_tokens": 20, "cache_creation_input_tokens": 500, "cache_read_input_tokens": 5000}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    start = _event(type="message_start", message=message)
    start += _event(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
    end = _event(type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 4 * events})
    return start, _event(type="content_block_stop", index=0) + end + _event(type="message_stop")


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
    before, after = _message_around(events) if "whole" in query else (b"", b"")
    for number in range(events):
        if number and gap:
            await asyncio.sleep(gap / 1000)
        if writer.is_closing():
            _gone()
        event = _event(**_DELTA, at=time.monotonic_ns()) if before else f"data: {time.monotonic_ns()}\n\n".encode()
        event = (before if not number else b"") + event + (after if number == events - 1 else b"")
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
