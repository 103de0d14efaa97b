"""The half of a copy that writes files, below one directory and nowhere else."""

from __future__ import annotations

import errno
import fcntl
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
    Message,
    has_controls,
    hash_prefix,
    write_all,
)

PART = ".ccb-part"
_MAX_PATH = 16 * 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MORE_BYTES, _MORE_ENTRIES = 64 << 20, 100_000  # beside twice what was announced: a folder grows while it is copied


class Receiver:
    """Receives what a `Sender` sends, below one target. `most`: only one file of at most so many bytes."""

    def __init__(self, channel: CopyChannel, progress: CopyProgress, *, private: bool = False, most: int = 0) -> None:
        self._channel = channel
        self._progress = progress
        self._private = private
        self._most = most
        self._taken = 0
        self._bytes_left = self._entries_left = 0

    def receive(self, target: str, name: str) -> str:
        """Receive to `target`, or into it as `name` if it is a directory. Return the path. Raise CannotCopy."""
        source = self._channel.message("source")
        files, size, folder = source.number("files"), source.number("bytes"), source.get("folder") is True
        if self._most and (folder or size > self._most):
            raise CannotCopy(name, "it is a folder" if folder else f"it has {size:,} bytes, more than {self._most:,}")
        self._bytes_left, self._entries_left = self._most or 2 * size + _MORE_BYTES, 2 * files + _MORE_ENTRIES
        self._progress.begun(files, size)
        path, place, last = _place(target, name)
        try:
            if folder:
                self._folder(place, last, source.number("mode"))
            else:
                self._file(self._channel.message("file"), place, last)
                self._channel.message("end")
        finally:
            os.close(place)
        self._channel.say("done")
        return path

    def _folder(self, place: int, top: str, mode: int) -> None:
        """Receive the contents of a folder. Only the directory of the last file is held open beside its root."""
        root = _make_below(place, top, mode)
        here, at = root, ""
        try:
            while True:
                message = self._channel.message("folder", "file", "skipped", "end")
                if message["is"] == "end":
                    return
                self._entries_left -= 1
                self._refuse_more(top)
                if message["is"] == "skipped":
                    self._progress.left_out(message.text("path"), message.text("why"))
                    continue
                parent, name = _split(message.text("path"))
                if parent != at:
                    if here != root:
                        os.close(here)
                    here, at = root, ""  # what is open, if the next line fails
                    here, at = _walk(root, parent), parent
                if message["is"] == "folder":
                    os.close(_make_below(here, name, message.number("mode")))
                else:
                    self._file(message, here, name)
        finally:
            if here != root:
                os.close(here)
            os.close(root)

    def _file(self, message: Message, folder: int, name: str) -> None:
        size = message.number("bytes")
        self._bytes_left -= size
        self._refuse_more(name)
        with _Incoming(folder, name, 0o600 if self._private else message.number("mode") & 0o777) as incoming:
            start, digest = 0, hashlib.sha256()
            if size >= RESUMABLE:
                start, digest = self._agree(incoming, size)
                if start and incoming.is_there:
                    self._channel.message("sum")
                    self._progress.one_is_there()
                    return
            os.ftruncate(incoming.fd, start)
            os.lseek(incoming.fd, start, os.SEEK_SET)
            left = size - start
            while left:
                piece = self._channel.next()
                if not isinstance(piece, bytes) or not 0 < len(piece) <= left:
                    raise ValueError("only a piece of the file is expected here")
                left -= len(piece)
                digest.update(piece)
                write_all(incoming.fd, piece)
                self._taken += len(piece)
                if self._channel.count_wanted:
                    self._channel.taken(self._taken)
                self._progress.moved(len(piece))
            if self._channel.message("sum").text("sha256") != digest.hexdigest():
                os.ftruncate(incoming.fd, 0)
                raise CannotCopy(name, "its SHA-256 is not that of the source: the copy was thrown away")
            incoming.finish()
            self._progress.one_is_there()

    def _refuse_more(self, name: str) -> None:
        """Raise CannotCopy if the other end sends much more than it has announced: it could fill the disk."""
        if self._bytes_left < 0 or self._entries_left < 0:
            raise CannotCopy(name, "the other end sends more than it has announced")

    def _agree(self, incoming: _Incoming, size: int) -> tuple[int, hashlib._Hash]:
        digest = hashlib.sha256()
        there = incoming.hash_what_is_there(size, digest)
        self._channel.say("have", bytes=there, sha256=digest.hexdigest())
        start = self._channel.message("from").number("bytes")
        if start not in (0, there):
            raise ValueError("the file goes on where nothing is")
        self._progress.moved(start)
        return start, digest if start else hashlib.sha256()


def _place(target: str, name: str) -> tuple[str, int, str]:
    """Return the path below which everything is written, and its open directory and name. Links on it are followed."""
    path = os.path.expanduser(target)
    if os.path.isdir(path):
        folder, last = path, name
    elif path.endswith("/"):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", path)
    else:
        folder, last = os.path.split(path)
    if not _is_name(last):
        raise CannotCopy(target, "say under which name it is to be kept")
    return os.path.join(folder, last), os.open(folder or ".", _DIRECTORY), last


class _Incoming:
    """A file under a temporary name until it is complete. `is_there`: what was hashed is the file itself."""

    def __init__(self, folder: int, name: str, mode: int) -> None:
        self._folder = folder
        self._name = name
        self._part = part_name(name)
        self._mode: int | None = None
        self._complete = False
        self.is_there = False
        existing = _info(folder, name)
        if existing is not None and stat.S_ISDIR(existing.st_mode):
            raise CannotCopy(name, "a folder of this name is in the way")
        if existing is not None and not (stat.S_ISREG(existing.st_mode) or stat.S_ISLNK(existing.st_mode)):
            raise CannotCopy(name, "a device, pipe or socket of this name is in the way")  # /dev/null, for root
        if existing is not None and stat.S_ISREG(existing.st_mode):
            self._mode = stat.S_IMODE(existing.st_mode) & 0o777
        self.fd = self._open(mode | 0o600)

    def __enter__(self) -> _Incoming:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self._complete and os.fstat(self.fd).st_size < RESUMABLE:
                os.unlink(self._part, dir_fd=self._folder)
        finally:
            os.close(self.fd)

    def hash_what_is_there(self, size: int, digest: hashlib._Hash) -> int:
        """Add to `digest` what an earlier attempt has left, or else the file itself. Return how many bytes that are."""
        there = min(os.fstat(self.fd).st_size, size)
        existing = _info(self._folder, self._name)
        if there or existing is None or not stat.S_ISREG(existing.st_mode) or existing.st_size != size:
            return there if hash_prefix(self.fd, there, digest) else 0
        fd = os.open(self._name, SOURCE_FLAGS | os.O_NOFOLLOW, dir_fd=self._folder)
        try:
            self.is_there = stat.S_ISREG(os.fstat(fd).st_mode) and hash_prefix(fd, size, digest)
        finally:
            os.close(fd)
        return size if self.is_there else 0

    def finish(self) -> None:
        """Give the file its name. It replaces what has the name; a link there is replaced, not followed."""
        if self._mode is not None:
            os.fchmod(self.fd, self._mode)
        os.rename(self._part, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._complete = True

    def _open(self, mode: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        for _ in range(10):
            fd = os.open(self._part, flags, mode, dir_fd=self._folder)
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or info.st_uid != os.geteuid():
                os.close(fd)
                os.unlink(self._part, dir_fd=self._folder)  # somebody else has put it there
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                raise CannotCopy(self._name, "another copy to it is under way") from None
            except OSError:
                pass  # a file system without locks
            now = _info(self._folder, self._part)
            if now is not None and (now.st_ino, now.st_dev) == (info.st_ino, info.st_dev):
                return fd
            os.close(fd)  # another copy has just completed it
        raise CannotCopy(self._name, "its temporary file cannot be used")


def part_name(name: str) -> str:
    if len(os.fsencode(name)) + len(PART) < 255:
        return "." + name + PART
    return "." + hashlib.sha256(os.fsencode(name)).hexdigest()[:32] + PART


def _info(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and not has_controls(name)


def _split(path: str) -> tuple[str, str]:
    """Return the folder and the name of a path from the other end. Raise CannotCopy unless it leads downwards."""
    names = path.split("/")
    if len(path) > _MAX_PATH or len(names) > MAX_DEPTH + 2 or not all(map(_is_name, names)):
        raise CannotCopy(path[:200], "the other end may not name this: it leads out of the target, or is no name")
    return "/".join(names[:-1]), names[-1]


def _walk(root: int, path: str) -> int:
    fd = root
    for name in path.split("/") if path else []:
        try:
            inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
        finally:
            if fd != root:
                os.close(fd)
        fd = inner
    return fd


def _make_below(folder: int, name: str, mode: int) -> int:
    try:
        os.mkdir(name, (mode & 0o777) | 0o700, dir_fd=folder)
    except FileExistsError:
        pass
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            raise CannotCopy(name, "a link or a file of this name is in the way of the folder") from None
        raise
