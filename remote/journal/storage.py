"""What a journal is written to: a file on the disk, or the memory of the worker where there is no disk to write to."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Union

MEMORY_BYTES = 256 << 20
"""Most bytes of a journal in memory."""


_NO_ROOM = {
    errno.ENOSPC: "free space on the disk of %s",
    errno.EDQUOT: "free space of your quota on the disk of %s",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f) there, for %s",
}


class DiskFile:
    """Append-only. Everything raises OSError."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)

    def write(self, data: bytes) -> int:
        """Append what there is room for; how many bytes."""
        return os.write(self._fd, data)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Make what is written durable. To be called in a thread."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._fd)
        else:
            os.fsync(self._fd)

    def lines(self, start: int) -> Iterator[bytes]:
        """The lines from byte `start` on, each with its end; also in a thread."""
        with open(self._path, "rb") as file:
            file.seek(start)
            yield from file

    def close(self) -> None:
        os.close(self._fd)


class MemoryFile:
    """The same without a file. It ends with the process, so nothing in it is ever half-written or damaged."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit = limit
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        if len(self._data) + len(data) > self._limit:
            raise OSError(errno.ENOSPC, "it is kept in memory only, and has reached its %d MiB" % (self._limit >> 20))
        self._data += data
        return len(data)

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def sync(self) -> None:
        """There is nothing more durable than this."""

    def lines(self, start: int) -> Iterator[bytes]:
        while start < len(self._data):
            end = self._data.find(b"\n", start) + 1 or len(self._data)
            yield bytes(self._data[start:end])
            start = end

    def close(self) -> None:
        """What is left can still be read."""


def no_room(error: OSError, path: str) -> str:
    """What the person has to do when a journal of this path failed for want of room; "" when it did not."""
    if error.errno not in _NO_ROOM:
        return ""
    return _NO_ROOM[error.errno] % os.path.dirname(path) if path else "start a new session"


JournalFile = Union[DiskFile, MemoryFile]


def journal_file(path: str) -> JournalFile:
    """The file of this path; in memory when that is ""."""
    return DiskFile(path) if path else MemoryFile()
