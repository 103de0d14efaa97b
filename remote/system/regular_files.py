"""What a path is, and regular files: how they are opened, and how their versions are told apart."""

from __future__ import annotations

import enum
import hashlib
import os
import stat

from ccb.tunnel.wire.dataclass import dataclass


class FileKind(enum.Enum):
    """The kind of a path."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "device, pipe or socket"


@dataclass(frozen=True)
class FileInfo:
    """A path's state. `mode` is the permission bits; `mtime_ns`, `ctime_ns` and `size` (bytes) tell versions apart
    cheaply. `links` counts its names."""

    kind: FileKind
    size: int
    mtime_ns: int
    mode: int
    inode: int
    ctime_ns: int = 0
    links: int = 1


class FileChanged(Exception):
    """The content of the file is not what the caller expected. Nothing was written."""


class NotAFile(Exception):
    """The path is not a regular file, but a device, a pipe, a socket or a directory, and has no content to read; or it
    is too large for what reads it."""


ABSENT = ""
"""The expected digest of a file that must not exist yet."""


def digest_of(data: bytes) -> str:
    """Return the digest that identifies a version for `replace`."""
    return hashlib.sha256(data).hexdigest()


def kind_of(mode: int) -> FileKind:
    if stat.S_ISREG(mode):
        return FileKind.FILE
    if stat.S_ISDIR(mode):
        return FileKind.DIRECTORY
    return FileKind.LINK if stat.S_ISLNK(mode) else FileKind.OTHER


def info_of(status: os.stat_result) -> FileInfo:
    return FileInfo(
        kind_of(status.st_mode),
        status.st_size,
        status.st_mtime_ns,
        stat.S_IMODE(status.st_mode),
        status.st_ino,
        status.st_ctime_ns,
        status.st_nlink,
    )


class open_regular:
    """Open a regular file for reading, as a context manager that returns its descriptor. Raise NotAFile for anything
    else: opening a pipe does not block, and a terminal does not become the controlling one."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        kind = kind_of(os.fstat(self._file).st_mode)
        if kind is not FileKind.FILE:
            os.close(self._file)
            raise NotAFile(f"{path} is a {kind.value}")

    def __enter__(self) -> int:
        return self._file

    def __exit__(self, *exc: object) -> None:
        os.close(self._file)
