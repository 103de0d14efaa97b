"""How this process gets memory from the system, and gives it back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

_WORTH_IT = 8 * 1024 * 1024
"""Bytes that must have become free before they are given back: that takes a millisecond."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_RECEIVED = 256 * 1024
"""The size of the buffer that asyncio makes each time before it reads from a socket."""

_KEPT = 2 * 1024 * 1024
"""Free memory that is kept. With less than an answer has in its buffers, each of its pieces would be got anew."""


class FreedMemory:
    """Counts what becomes free, and gives it back now and then.

    The C library of Linux (glibc) keeps what was freed below something that is still used. After 100 requests of
    200 KB that is 18 MB.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._giving: asyncio.Future[None] | None = None

    def add(self, size: int) -> None:
        """Note that `size` bytes have become free. A thread gives memory back if there is enough of it."""
        self._bytes += size
        if self._bytes >= _WORTH_IT and (self._giving is None or self._giving.done()):
            self._bytes = 0
            self._giving = asyncio.get_running_loop().run_in_executor(None, _give_back)

    async def close(self) -> None:
        """Wait for the thread."""
        if self._giving is not None:
            await self._giving


def keep_receive_buffers() -> None:
    """Let reads from sockets take their buffers from memory that the process has.

    glibc would get each from the system, and give it back when the few bytes that came are known: three calls of the
    system and a page fault, 20 µs of the 100 that an event of a stream costs.
    """
    option = _of_libc("mallopt")
    if option is not None:
        option(_M_MMAP_THRESHOLD, _RECEIVED + 16 * 1024)
        option(_M_TRIM_THRESHOLD, _KEPT)


def _give_back() -> None:
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_libc(name: str) -> Callable[..., object] | None:
    """Return a function of the C library, None where it knows no such call (macOS, musl): there it is not needed."""
    if sys.platform != "linux":
        return None
    import ctypes  # 4 ms, unless asyncssh has loaded it

    found: Callable[..., object] | None = getattr(ctypes.CDLL(None), name, None)
    return found
