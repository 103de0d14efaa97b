"""Tasks of a fleet alone in a process: each one is a worker's end of a link, with the worker's own model streams.

`python -m benchmarks.tasks_alone SOCKET TASKS AT_ONCE CALLS EVENTS GAP_MS` runs TASKS tasks, AT_ONCE at the same time.
Each connects, and makes CALLS model calls with a growing conversation; each answer has EVENTS events, GAP_MS apart.
"begun" is printed when the first AT_ONCE tasks are connected; they go on after a line on stdin. Then figures of all of
them are printed: calls that were answered and refused, seconds, and p50 and p99 of the milliseconds to the first byte
and of an event on its way.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
import uuid
from collections import Counter, deque
from dataclasses import replace

from tests.support.network.link_peer import HELLO

from ccb.remote.daemon.model_streams import ModelStreams, StreamLink
from ccb.tunnel.wire.frames import Attach, CallData, CallEnd, CallHead, Credit, Frame, Ping, Pong
from ccb.tunnel.wire.ndjson import FrameDecoder, encode_frame

from .proxies_alone import MODEL

_PROMPT, _TURN = "x" * 16_000, "y" * 2_000  # what a first request has, and what each call adds


class Worker:
    """One task: a link to the proxy, and its model streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = FrameDecoder()
        self._frames: deque[Frame] = deque()
        self.streams = ModelStreams()

    def send(self, frame: Frame) -> None:
        for line in encode_frame(frame):
            self._writer.write(line)

    async def bulk(self, frame: Frame) -> None:
        self.send(frame)
        await self._writer.drain()

    async def attached(self) -> StreamLink:
        self.send(replace(HELLO, session=str(uuid.uuid4())))
        while not self._frames:
            self._frames += self._decoder.feed(await self._reader.read(65536) or sys.exit("the proxy has gone"))
        frame = self._frames.popleft()
        assert isinstance(frame, Attach)
        link = StreamLink(frame.epoch, "task", frame.nonce, self.send, self.bulk, frame.deltas, frame.primed)
        self.streams.attach(link)
        return link

    async def read(self, link: StreamLink) -> None:
        while data := await self._reader.read(65536):
            for frame in self._decoder.feed(data):
                if isinstance(frame, (CallHead, CallData, CallEnd, Credit)):
                    self.streams.handle(link, frame)
                elif isinstance(frame, Ping):
                    self.send(Pong(link.epoch, frame.n))

    def close(self) -> None:
        self._writer.close()


class Figures:
    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.first: list[float] = []
        self.late: list[float] = []

    def heard(self, data: bytes) -> None:
        _, _, at = data.rpartition(b'"at": ')
        if digits := at.partition(b"}")[0]:
            self.late.append((time.monotonic_ns() - int(digits)) / 1e6)


async def _call(worker: Worker, messages: list[object], path: str, figures: Figures) -> None:
    body = {"model": MODEL, "max_tokens": 4000, "stream": True, "messages": messages}
    began, sent = time.monotonic(), json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    async with worker.streams.request(str(uuid.uuid4()), "POST", path, headers, [sent]) as response:
        first, text = 0.0, b""
        async for chunk in response.body():
            first = first or time.monotonic() - began
            if response.status == 200:
                figures.heard(chunk)
            else:
                text += chunk
    kind = "answered" if response.status == 200 else json.loads(text)["error"]["type"]
    figures.outcomes[kind] += 1
    figures.first.append(first * 1000)


async def _task(path: str, calls: int, query: str, figures: Figures, begun: asyncio.Barrier, go: asyncio.Event) -> None:
    worker = Worker(*await asyncio.open_unix_connection(path))
    link = await worker.attached()
    reading = asyncio.create_task(worker.read(link))
    if not go.is_set():
        await begun.wait()
        await go.wait()
    messages: list[object] = [{"role": "user", "content": _PROMPT}]
    try:
        for _ in range(calls):
            await _call(worker, messages, f"/v1/messages?{query}", figures)
            messages += [{"role": "assistant", "content": _TURN}, {"role": "user", "content": "go on"}]
    finally:
        reading.cancel()
        worker.close()


async def _main(path: str, tasks: int, at_once: int, calls: int, events: int, gap: int) -> None:
    figures, query = Figures(), f"events={events}&gap={gap}&whole=1"
    begun, go, left = asyncio.Barrier(at_once + 1), asyncio.Event(), tasks

    async def lane() -> None:
        nonlocal left
        while left:
            left -= 1
            await _task(path, calls, query, figures, begun, go)

    lanes = [asyncio.create_task(lane()) for _ in range(at_once)]
    waiting = asyncio.create_task(begun.wait())
    await asyncio.wait([waiting, *lanes], return_when=asyncio.FIRST_COMPLETED)
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    began = time.monotonic()
    go.set()
    await asyncio.gather(*lanes)
    took = time.monotonic() - began
    times = [statistics.quantiles([0.0, 0.0, *each], n=100) for each in (figures.first, figures.late)]
    print(json.dumps([figures.outcomes, took, *[(each[49], each[98]) for each in times]]), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], *map(int, sys.argv[2:])))
