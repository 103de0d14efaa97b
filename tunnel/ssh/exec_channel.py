"""The pipe of one command, and asyncssh's input buffer without copies of slices (half of all in a download)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import ConnectionLost
from ..tasks import cancelled
from ..transports.command_transport import LAST_WORDS_S, StderrTail

if TYPE_CHECKING:
    import asyncssh


_LARGE = 1024  # bytes from which a part is handed out as a view. Smaller ones go to functions that take bytes


class InputBuffer:
    """Does what asyncssh does with its buffer: append, measure, find, copy the first bytes, and drop them."""

    def __init__(self, data: bytes = b"") -> None:
        self._chunks = deque([data] if data else ())
        self._at = 0  # where the rest of the first chunk begins
        self._size = len(data)

    def __len__(self) -> int:
        return self._size

    def __iadd__(self, data: bytes) -> InputBuffer:
        if data:
            self._chunks.append(data)
            self._size += len(data)
        return self

    def __getitem__(self, part: slice) -> bytes | memoryview | InputBuffer:
        """Return the bytes from one place to another. Without an end, drop those before the place."""
        start, stop, _ = part.indices(self._size)
        if part.stop is None:
            self._size -= start
            self._at += start
            while self._chunks and self._at >= len(self._chunks[0]):
                self._at -= len(self._chunks.popleft())
            return self
        if start >= stop:
            return b""
        if self._at + stop <= len(self._chunks[0]):
            start, stop, data = self._at + start, self._at + stop, self._chunks[0]
        else:
            data = self._joined(start, stop)
            start, stop = 0, len(data)
        return memoryview(data)[start:stop] if stop - start >= _LARGE else data[start:stop]

    def find(self, wanted: bytes, start: int, stop: int) -> int:
        return self._joined(0, self._size).find(wanted, start, stop)

    def _joined(self, start: int, stop: int) -> bytes:
        parts, at = [], -self._at
        for chunk in self._chunks:
            if at >= stop:
                break
            if at + len(chunk) > start:
                parts.append(memoryview(chunk)[max(0, start - at, -at) : stop - at])
            at += len(chunk)
        return b"".join(parts)


_CLOSE_S = 5.0


class SshPipe:
    def __init__(self, name: str, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._name = name
        self._process = process
        self._tail = StderrTail()
        self._stderr_task = asyncio.create_task(self._drain_stderr())

    async def _drain_stderr(self) -> None:
        import asyncssh

        with contextlib.suppress(asyncssh.Error, OSError):
            await self._tail.drain(self._process.stderr.read)

    async def read(self, n: int = 65536) -> bytes:
        import asyncssh

        try:
            return await self._process.stdout.read(n)
        except (asyncssh.Error, OSError) as error:
            raise lost(self._name, error) from error

    def hand_over(self, take: Callable[[bytes], None]) -> None:
        taker = _Taker(take)
        self._process.set_writer(taker, True, None)
        self._process.feed_recv_buf(None, taker)

    def hold(self) -> None:
        self._process.pause_feeding(None)

    def release(self) -> None:
        self._process.resume_feeding(None)

    async def write(self, data: bytes) -> None:
        import asyncssh

        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as error:
            raise lost(self._name, error) from error

    async def close(self) -> None:
        self._process.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._process.wait_closed()
        await cancelled(self._stderr_task)

    async def exit_status(self) -> int | None:
        await self._process.wait_closed()
        await asyncio.wait({self._stderr_task}, timeout=LAST_WORDS_S)
        status = self._process.exit_status
        return status if status is not None and status >= 0 else None  # asyncssh gives -1 for a signal

    def stderr_tail(self) -> str:
        return self._tail.text()


class _Taker:
    """What asyncssh writes the output of a command to, as if it were a file. The end was told before `close`."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def write(self, data: bytes) -> None:
        if data:
            self._take(data)

    def write_exception(self, exc: Exception) -> None:
        self.write_eof()

    def write_eof(self) -> None:
        self._take(b"")

    def close(self) -> None: ...


def lost(name: str, error: Exception) -> ConnectionLost:
    return ConnectionLost(f"the connection to {name} was lost", evidence=str(error) or type(error).__name__)
