"""Streams that go on, in a process of its own: the load beside which the auth proxy is measured.

`python -m benchmarks.load_alone ADDRESS STREAMS NONCE` reads that many answers of 100 events, 20 ms apart, and
asks anew when one ends. They begin one after the other, as those of agents do: streams in step would come in bursts. It
prints a line when all have begun, and ends with its stdin. ADDRESS is a path or HOST:PORT."""

from __future__ import annotations

import asyncio
import sys

EVENTS, GAP_MS = 100, 20


async def _stream(address: str, request: bytes, after: float, begun: asyncio.Event) -> None:
    await asyncio.sleep(after)
    host, _, port = address.rpartition(":")
    reader, writer = await (asyncio.open_connection(host, int(port)) if host else asyncio.open_unix_connection(address))
    while True:
        writer.write(request)
        text = await reader.readuntil(b"\r\n\r\n")
        begun.set()
        while not text.endswith(b"0\r\n\r\n"):
            text = text[-4:] + (await reader.read(1 << 16) or sys.exit("a stream was cut"))


async def _main(address: str, streams: int, nonce: str) -> None:
    body = b'{"model": "claude-test", "max_tokens": 10, "stream": true, "messages": []}'
    request = (
        f"POST /v1/messages?events={EVENTS}&gap={GAP_MS} HTTP/1.1\r\nhost: model\r\nx-auth-nonce: {nonce}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    apart = EVENTS * GAP_MS / 1000 / streams * 1.01
    begun = [asyncio.Event() for _ in range(streams)]
    reading = [
        asyncio.create_task(_stream(address, request, number * apart, each)) for number, each in enumerate(begun)
    ]
    for each in begun:
        await each.wait()
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for task in reading:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
