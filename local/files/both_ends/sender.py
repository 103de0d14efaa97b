"""The half of a copy that reads files."""

from __future__ import annotations

import errno
import hashlib
import os
import stat

from .copy_channel import (
    MAX_DEPTH,
    RESUMABLE,
    SOURCE_FLAGS,
    CannotCopy,
    CopyChannel,
    CopyProgress,
    has_controls,
    hash_prefix,
)


class Sender:
    def __init__(self, channel: CopyChannel, progress: CopyProgress) -> None:
        self._channel = channel
        self._progress = progress
        self._window = channel.window

    def send(self, path: str) -> None:
        path = os.path.expanduser(path)
        fd = os.open(path, SOURCE_FLAGS)
        try:
            info = os.fstat(fd)
            if stat.S_ISDIR(info.st_mode):
                files, size = _measure(fd)
                self._progress.begun(files, size)
                self._channel.say("source", folder=True, files=files, bytes=size, mode=stat.S_IMODE(info.st_mode))
                self._folder(fd, "", 0)
            elif stat.S_ISREG(info.st_mode):
                self._progress.begun(1, info.st_size)
                self._channel.say("source", folder=False, files=1, bytes=info.st_size)
                self._file(fd, path, "")
            else:
                raise CannotCopy(path, "it is neither a file nor a folder")
        finally:
            os.close(fd)
        self._channel.say("end")
        self._channel.message("done")

    def _folder(self, fd: int, path: str, depth: int) -> None:
        for name in sorted(os.listdir(fd)):
            below = f"{path}/{name}" if path else name
            if has_controls(name):
                self._skip(below, "control characters in its name")
                continue
            try:
                inner = _open_below(fd, name)
            except OSError as error:
                link = error.errno in (errno.ELOOP, errno.EMLINK)
                self._skip(below, "a link" if link else error.strerror or "it cannot be read")
                continue
            try:
                info = os.fstat(inner)
                if stat.S_ISREG(info.st_mode):
                    self._file(inner, below, below)
                elif not stat.S_ISDIR(info.st_mode):
                    self._skip(below, "neither a file nor a folder")
                elif depth >= MAX_DEPTH:
                    self._skip(below, "too many folders inside each other")
                else:
                    self._channel.say("folder", path=below, mode=stat.S_IMODE(info.st_mode))
                    self._folder(inner, below, depth + 1)
            finally:
                os.close(inner)

    def _skip(self, path: str, why: str) -> None:
        self._progress.left_out(path, why)
        self._channel.say("skipped", path=path, why=why)

    def _file(self, fd: int, path: str, below: str) -> None:
        info = os.fstat(fd)
        size = info.st_size
        start, digest = 0, hashlib.sha256()
        self._channel.say("file", path=below, bytes=size, mode=stat.S_IMODE(info.st_mode))
        if size >= RESUMABLE:
            start, digest = self._agree(fd, size)
        left = size - start
        os.lseek(fd, start, os.SEEK_SET)
        while left:
            data = os.read(fd, min(self._window.piece, left))
            if not data:
                raise CannotCopy(path, "it has become shorter meanwhile")
            left -= len(data)
            self._give(data)
            digest.update(data)
        self._channel.say("sum", sha256=digest.hexdigest())
        self._progress.one_is_there()

    def _agree(self, fd: int, size: int) -> tuple[int, hashlib._Hash]:
        have = self._channel.message("have")
        start = have.number("bytes")
        digest = hashlib.sha256()
        same = start <= size and hash_prefix(fd, start, digest) and digest.hexdigest() == have.text("sha256")
        if not same:
            start, digest = 0, hashlib.sha256()
        self._progress.moved(start)
        self._channel.say("from", bytes=start)
        return start, digest

    def _give(self, data: bytes) -> None:
        while self._window.full:
            found = self._channel.next()
            if not isinstance(found, int):
                raise ValueError("only a count is expected here")
            self._window.take(found)
        self._channel.give(data, counted=self._window.send(len(data)))
        self._progress.moved(len(data))


def _open_below(fd: int, name: str) -> int:
    return os.open(name, SOURCE_FLAGS | os.O_NOFOLLOW, dir_fd=fd)


def _measure(fd: int, depth: int = 0) -> tuple[int, int]:
    files = size = 0
    with os.scandir(fd) as entries:
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(info.st_mode):
                    files, size = files + 1, size + info.st_size
                elif stat.S_ISDIR(info.st_mode) and depth < MAX_DEPTH:
                    inner = _open_below(fd, entry.name)
                    try:
                        more = _measure(inner, depth + 1)
                    finally:
                        os.close(inner)
                    files, size = files + more[0], size + more[1]
            except OSError:
                continue  # it is reported when it is sent
    return files, size
