"""Give memory that has become free back to the system."""

from __future__ import annotations

import asyncio
import sys

_WORTH_IT = 8 * 1024 * 1024
"""Bytes that must have become free before they are given back: that takes a millisecond."""


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


def _give_back() -> None:
    """Do nothing where the C library knows no such call (macOS, musl): there it is not needed."""
    if sys.platform != "linux":
        return
    import ctypes  # 4 ms, unless asyncssh has loaded it

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
