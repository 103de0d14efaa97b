"""Where a journal is stored: in a file, or in the memory of the worker when there is no disk to write to."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Union

MAX_MEMORY_BYTES = 256 << 20
"""Limit of a journal in memory, in bytes."""


_NO_ROOM = {
    errno.ENOSPC: "free space on the disk of %s",
    errno.EDQUOT: "free space of your quota on the disk of %s",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f) there, for %s",
}


class DiskFile:
    """A file that is only appended to. Every method raises OSError."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)

    def write(self, data: bytes) -> int:
        """Append as many bytes as there is room for. Return their number."""
        return os.write(self._fd, data)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Make all written bytes durable (fsync). Call it in a thread."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._fd)
        else:
            os.fsync(self._fd)

    def lines(self, start: int) -> Iterator[bytes]:
        """Yield the lines from byte `start` on, each with its newline. May be used in a thread."""
        with open(self._path, "rb") as file:
            file.seek(start)
            yield from file

    def close(self) -> None:
        os.close(self._fd)


class MemoryFile:
    """The same interface in memory. It ends with the process, so its content is never half-written or damaged."""

    def __init__(self, limit: int = MAX_MEMORY_BYTES) -> None:
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
        """Do nothing: memory cannot be made more durable."""

    def lines(self, start: int) -> Iterator[bytes]:
        while start < len(self._data):
            end = self._data.find(b"\n", start) + 1 or len(self._data)
            yield bytes(self._data[start:end])
            start = end

    def close(self) -> None:
        """Do nothing: the content can still be read."""


def no_room(error: OSError, path: str) -> str:
    """Return what the person has to do when the journal at `path` could not be written for lack of room; "" for other
    errors."""
    if error.errno not in _NO_ROOM:
        return ""
    return _NO_ROOM[error.errno] % os.path.dirname(path) if path else "start a new session"


JournalFile = Union[DiskFile, MemoryFile]


def journal_file(path: str) -> JournalFile:
    """Open the file at `path`, or memory when the path is ""."""
    return DiskFile(path) if path else MemoryFile()
