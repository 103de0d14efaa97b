"""Read and write frames. Urgent frames are written first."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sized

from ..errors import ConnectionLost, ProtocolError
from ..transports.pipe import Pipe
from ..wire.frames import CallData, CallEnd, CallHead, Credit, Frame, FrameError
from ..wire.ndjson import FrameDecoder, encode_frame


class FrameReader:
    """Decodes what `read` returns: the next bytes of `pipe`, b"" at its end. `rest` are bytes that were read before.

    `memory` is how many bytes the last frame may take in memory, at most.
    """

    def __init__(self, pipe: Pipe, rest: bytes, read: Callable[[], Awaitable[bytes]], host: str) -> None:
        self.memory = 0
        self._pipe = pipe
        self._rest = rest
        self._read = read
        self._host = host
        self._decoder = FrameDecoder()
        self._decoded: Iterator[Frame] = iter(())

    def close(self) -> None:
        """Let go what has arrived of an unfinished frame."""
        self._decoder.drop()

    async def next_frame(self) -> Frame:
        """Return the next frame. Raise ConnectionLost at the end, ProtocolError, and what `read` raises."""
        while True:
            try:
                frame = next(self._decoded, None)  # one at a time: together they could take much memory
            except FrameError as error:
                raise ProtocolError(
                    f"{self._host} sent bytes that are not a frame: {error.reason}",
                    evidence=error.sample.decode("utf-8", "backslashreplace"),
                    do="Something on the host may write into the channel. Run with --debug and report it.",
                ) from None
            if frame is not None:
                self.memory = self._decoder.memory
                return frame
            data = self._rest or await self._read()
            self._rest = b""
            if not data:
                evidence = self._pipe.stderr_tail().strip()
                raise ConnectionLost(f"the connection to {self._host} ended", evidence=evidence, do="Connect again.")
            self._decoded = self._decoder.feed(data)


_BATCH = 64 * 1024  # bytes for one write of the pipe
_MAX_INPUTS = 64  # frames
_MAX_DATA = 8  # frames of at most CHUNK bytes
_MAX_URGENT = 4096  # frames; beyond that, answers to a peer that floods us are dropped, and credit waits


class FrameWriter:
    """Owns the task that writes to `pipe`. `failed` gets the reason as its result once writing is impossible."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._urgent: deque[bytes] = deque()
        self._inputs: deque[list[bytes]] = deque()
        self._data: deque[list[bytes]] = deque()
        self._changed = asyncio.Condition()
        self._news = asyncio.Event()
        self._part_ids = itertools.count()
        self._lines: Iterator[bytes] = iter(())
        self._busy = False
        self._task: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._run(), name="link writer")

    async def close(self) -> None:
        """Drop what is queued and end the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._fail(ConnectionLost("the connection is closed"))

    async def send(self, frame: Frame) -> None:
        """Queue `frame`. Wait while its queue is full. Raise ConnectionLost, or FrameError if it is too large."""
        if isinstance(frame, Credit):  # never dropped: its stream would stand still for good
            await self._room(self._urgent, _MAX_URGENT)
            self.send_soon(frame)
            return
        lines = encode_frame(frame, next(self._part_ids))
        lane, limit = (
            (self._data, _MAX_DATA) if isinstance(frame, CallHead | CallData | CallEnd) else (self._inputs, _MAX_INPUTS)
        )
        await self._room(lane, limit)
        lane.append(lines)
        self._news.set()

    async def _room(self, lane: Sized, limit: int) -> None:
        """Wait until a queue has room. Raise ConnectionLost."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(lane) < limit or self.failed.done())
        if self.failed.done():
            raise self.failed.result()

    def send_soon(self, frame: Frame) -> None:
        """Queue a small frame in front of everything else."""
        if len(self._urgent) < _MAX_URGENT and not self.failed.done():
            self._urgent.append(encode_frame(frame)[0])
            self._news.set()

    async def flush(self) -> None:
        """Wait until nothing is queued. Raise ConnectionLost."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._idle() or self.failed.done())
        if self.failed.done():
            raise self.failed.result()

    def _idle(self) -> bool:
        return not (self._busy or self._urgent or self._inputs or self._data)

    async def _run(self) -> None:
        try:
            while True:
                batch = self._next_batch()
                if batch:
                    await self._pipe.write(batch)
                async with self._changed:
                    self._changed.notify_all()
                self._news.clear()
                if self._idle():
                    await self._news.wait()
        except ConnectionLost as error:
            await self._fail(error)

    def _next_batch(self) -> bytes:
        """Return whole lines, the most urgent first. Urgent frames also go between the lines of a large frame."""
        batch = bytearray()
        while len(batch) < _BATCH:
            line = self._next_line()
            if line is None:
                break
            batch += line
        self._busy = bool(batch)
        return bytes(batch)

    def _next_line(self) -> bytes | None:
        if self._urgent:
            return self._urgent.popleft()
        line = next(self._lines, None)
        if line is not None:
            return line
        lane = self._inputs or self._data
        if not lane:
            return None
        self._lines = iter(lane.popleft())
        return next(self._lines)

    async def _fail(self, error: ConnectionLost) -> None:
        if not self.failed.done():
            self.failed.set_result(error)
        async with self._changed:
            self._changed.notify_all()
