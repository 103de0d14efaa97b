"""Read stdin and write stdout in daemon threads, also where another program has made them non-blocking."""

from __future__ import annotations

import asyncio
import functools
import io
import os
import select
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_PIECE = 64 * 1024
_FEW = 256
_MAX_PENDING = 1024 * 1024

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run a blocking call in a new thread and return its result. Cancelling does not stop the thread."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            done.set_exception(error)
        else:
            done.set_result(value)

    threading.Thread(target=run, name="blocking call", daemon=True).start()
    return await asyncio.wrap_future(done)


async def read_pieces(fd: int) -> AsyncIterator[bytes]:
    """Yield the bytes of `fd` as they arrive, until its end. Nothing is read ahead."""
    while piece := await in_thread(lambda: _read(fd)):
        yield piece


class Writer:
    """Writes to `fd` in order. `broken` resolves with the error when `fd` cannot be written any more."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.broken: asyncio.Future[OSError] = asyncio.get_running_loop().create_future()
        self._pending = bytearray()
        self._room, self._drained = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._drained.set()
        self._writing: asyncio.Task[None] | None = None

    async def write(self, data: bytes) -> None:
        await self._room.wait()
        if self.broken.done():
            return
        self._pending += data
        if len(self._pending) >= _MAX_PENDING:
            self._room.clear()
        if self._drained.is_set():
            self._drained.clear()
            self._writing = asyncio.create_task(self._write(), name="stdout")

    def write_few(self, data: bytes) -> int:
        """Write without a thread if there is surely room for that little. Return how many bytes were written."""
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        if len(data) > _FEW or not self._drained.is_set() or poller.poll(0) != [(self._fd, select.POLLOUT)]:
            return 0
        try:
            return os.write(self._fd, data)
        except OSError:  # the thread meets it again, and tells
            return 0

    async def drain(self) -> None:
        """Wait until all is written. Other tasks get their turn in any case."""
        await asyncio.sleep(0)
        await self._drained.wait()

    async def _write(self) -> None:
        try:
            while self._pending:
                data, self._pending = bytes(self._pending), bytearray()
                self._room.set()
                await in_thread(functools.partial(_write_all, self._fd, data))
        except OSError as error:
            self.broken.set_result(error)
        self._room.set()
        self._drained.set()


def read_some(fd: int, most: int) -> bytes:
    """Return what can be read, b"" at the end. Wait for it, also where the descriptor does not block."""
    return _when_ready(fd, select.POLLIN, lambda: os.read(fd, most))


def write_some(fd: int, data: memoryview) -> int:
    """Write the beginning of `data`, and return its length. Wait for room, also where the descriptor does not block."""
    return _when_ready(fd, select.POLLOUT, lambda: os.write(fd, data))


def _when_ready(fd: int, event: int, call: Callable[[], T]) -> T:
    while True:
        try:
            return call()
        except BlockingIOError:
            poller = select.poll()
            poller.register(fd, event)
            poller.poll()


class WaitingFile(io.RawIOBase):
    """A standard stream that does not block, as a file that does. Python's own takes a full pipe for a broken one."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def readable(self) -> bool:
        return self._fd == 0

    def writable(self) -> bool:
        return self._fd != 0

    def readinto(self, buffer: Any) -> int:
        data = read_some(self._fd, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        return write_some(self._fd, memoryview(data))


def _read(fd: int) -> bytes:
    try:
        return read_some(fd, _PIECE)
    except OSError:  # closed, or a terminal that is gone
        return b""


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[write_some(fd, view) :]
