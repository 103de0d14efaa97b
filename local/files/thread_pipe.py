"""Lets a thread read and write the pipe of a command, so that a copy never blocks the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from ccb.tunnel.errors import CcbError, ConnectionLost
from ccb.tunnel.transports.pipe import HandsOver, Pipe

from ..terminal.stdio import in_thread
from .both_ends.copy_channel import StreamEnded

_READ = 256 * 1024
_MAX_WAITING = 4 * 1024 * 1024
_MAX_CHUNKS = 256  # that are passed on as they came
_JOINED = 4096  # bytes up to which what comes is kept in one piece: each costs some 40 bytes

SILENCE_S = 30.0  # the half on the host says something every 5 s
T = TypeVar("T")


class ThreadPipe:
    """A pipe with a queue in each direction. A silent other end counts as lost after SILENCE_S."""

    def __init__(self, pipe: Pipe, rest: bytes = b"") -> None:
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Condition()
        self._incoming: deque[bytes] = deque([rest] if rest else [])
        self._outgoing: deque[bytes] = deque()
        self._waiting = [len(rest), 0]
        self._least = 1
        self._heard_at = self._loop.time()
        self._ended = False
        self._error: CcbError | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._more = asyncio.Event()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread that may use `read` and `write`. Raise ConnectionLost if the pipe breaks."""
        tasks = [self._pump_out(), self._watch()]
        if isinstance(self._pipe, HandsOver):
            self._pipe.hand_over(self._came)
        else:
            tasks.append(self._pump_in())
        pumps = [asyncio.create_task(each) for each in tasks]
        working = asyncio.create_task(in_thread(work), name="copy")
        try:
            return await asyncio.shield(working)
        except StreamEnded:
            if self._error is not None:
                raise self._error from None
            raise
        finally:
            self._end(None)
            await asyncio.gather(working, return_exceptions=True)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def read(self, least: int) -> list[bytes]:
        """Return at least `least` bytes unless the end comes before; nothing at the end. For the thread."""
        with self._lock:
            self._least = min(least, _MAX_WAITING)
            while self._waiting[0] < self._least and not self._ended:
                self._lock.wait()
            found, room = list(self._incoming), self._waiting[0] > _MAX_WAITING
            self._incoming.clear()
            self._waiting[0] = 0
        if room:
            self._loop.call_soon_threadsafe(self._go_on)
        return found if len(found) < _MAX_CHUNKS else [b"".join(found)]

    def write(self, parts: Sequence[bytes]) -> None:
        """Send `parts`. Wait while much is unsent. Raise StreamEnded, unless there is something to read."""
        with self._lock:
            while self._waiting[1] > _MAX_WAITING and not self._ended:
                self._lock.wait()
            if self._ended and self._incoming:
                return
            if self._ended:
                raise StreamEnded
            first = not self._outgoing
            self._outgoing.extend(parts)
            self._waiting[1] += sum(map(len, parts))
        if first:
            self._loop.call_soon_threadsafe(self._more.set)

    async def _pump_in(self) -> None:
        try:
            while data := await self._pipe.read(_READ):
                self._came(data)
                await self._room.wait()
            self._end(None)
        except CcbError as error:
            self._end(error)

    def _came(self, data: bytes) -> None:
        if not data:
            self._end(None)
            return
        self._heard_at = self._loop.time()
        with self._lock:
            self._waiting[0] += len(data)
            if self._incoming and len(self._incoming[-1]) + len(data) <= _JOINED:
                data = self._incoming.pop() + data
            self._incoming.append(data)
            full = self._waiting[0] > _MAX_WAITING
            if self._waiting[0] >= self._least:
                self._lock.notify_all()
        if full and self._room.is_set():
            self._room.clear()
            if isinstance(self._pipe, HandsOver):
                self._pipe.hold()

    def _go_on(self) -> None:
        self._heard_at = self._loop.time()
        if not self._room.is_set():
            self._room.set()
            if isinstance(self._pipe, HandsOver):
                self._pipe.release()

    async def _watch(self) -> None:
        """End with an error once the host is silent: one timer, as one for each piece costs as much as the piece."""
        while True:
            now = self._loop.time()
            since = self._heard_at if self._room.is_set() else now
            if now - since >= SILENCE_S:
                self._end(ConnectionLost(f"the host has said nothing for {SILENCE_S:.0f} s"))
                return
            await asyncio.sleep(since + SILENCE_S - now)

    async def _pump_out(self) -> None:
        try:
            while True:
                with self._lock:
                    data = b"".join(self._outgoing)
                    self._outgoing.clear()
                    self._waiting[1] -= len(data)
                    self._lock.notify_all()
                    if not data:
                        self._more.clear()
                if data:
                    await self._pipe.write(data)
                else:
                    await self._more.wait()
        except CcbError as error:
            self._end(error)

    def _end(self, error: CcbError | None) -> None:
        with self._lock:
            self._ended = True
            self._error = self._error or error
            self._lock.notify_all()
