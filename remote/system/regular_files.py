"""Versions of files, and their replacement: by a rename, or in place where that would make another file of it."""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Iterator

from ccb.tunnel.wire.dataclass import dataclass

from ..sandbox.cage_directories import all_mounts
from .process import new_mark


class FileKind(enum.Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "device, pipe or socket"


@dataclass(frozen=True)
class FileInfo:
    """A path's state. `mode` is the permission bits; times and `size` tell versions apart; `links` its names."""

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
    """The path is no regular file with a content to read, or it is too large for what reads it."""


ABSENT = ""  # the expected digest of a file that must not exist yet


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_KINDS = {stat.S_IFREG: FileKind.FILE, stat.S_IFDIR: FileKind.DIRECTORY, stat.S_IFLNK: FileKind.LINK}


def kind_of(mode: int) -> FileKind:
    return _KINDS.get(stat.S_IFMT(mode), FileKind.OTHER)


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


@contextlib.contextmanager
def open_regular(path: str) -> Iterator[int]:
    """Open a regular file for reading. Raise NotAFile for pipes and all else, at once."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        kind = kind_of(os.fstat(file).st_mode)
        if kind is not FileKind.FILE:
            raise NotAFile(f"{path} is a {kind.value}")
        yield file
    finally:
        os.close(file)


_BLOCK = 1 << 20
_TEMP_PREFIX = ".ccb-"
_TEMP_NAME = re.compile(re.escape(_TEMP_PREFIX) + "[0-9a-f]{16}")
_SWEEP_S = 2.0
_LOCK_WAIT = 1.0  # seconds
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def replace_file(path: str, data: bytes, expected: str, unkept: str = "") -> FileInfo:
    if expected == ABSENT:
        return _create(path, data)
    old = _to_change(path)
    if old.st_nlink <= 1:  # 0: the file system does not count
        renamed = _by_rename(path, data, expected, old)
        if renamed is not None:
            return renamed
    if unkept:
        why = f"it has to be written in place, and its present content could not be kept before ({unkept}): use Bash"
        raise OSError(errno.ENOTSUP, why, path)
    return _in_place(path, data, expected)


def _create(path: str, data: bytes) -> FileInfo:
    directory = os.path.dirname(path)
    if os.path.lexists(path):
        raise FileChanged(f"{path} exists already")
    try:
        os.makedirs(directory, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
    with _temporary(directory, 0o666) as (temp, file):
        _write_all(file, data)
        os.fsync(file)
        info = info_of(os.fstat(file))
        if not rename_to_new(temp, path):
            raise FileChanged(f"{path} exists already")
    sync_directory(directory)
    return info


def _by_rename(path: str, data: bytes, expected: str, old: os.stat_result) -> FileInfo | None:
    """Return None if a rename is not possible, or would make another file of it: with other owners or attributes."""
    directory = os.path.dirname(path)
    if _is_mounted(path, old):
        return None
    with contextlib.ExitStack() as stack:
        try:
            temp, file = stack.enter_context(_temporary(directory, 0o600))
        except OSError as error:
            if error.errno in _CLOSED:
                return None
            raise
        _write_all(file, data)
        if not _copy_attributes(path, old, file):
            return None
        os.fsync(file)
        info = info_of(os.fstat(file))
        with _locked(directory):
            if _digest(path) != expected:
                raise FileChanged(f"{path} has changed")
            try:
                os.replace(temp, path)
            except OSError as error:
                if error.errno in (*_CLOSED, errno.EBUSY, errno.EXDEV):  # it is mounted, or in a sticky directory
                    return None
                raise
    sync_directory(directory)
    return info


def _in_place(path: str, data: bytes, expected: str) -> FileInfo:
    """Write over the file. When that fails, the old content is put back; when it is cut off, it is a mixture."""
    with _locked(os.path.dirname(path)), _opened(path) as file:
        _lock(file)  # its other names may be in other directories
        old = b"".join(iter(lambda: os.read(file, _BLOCK), b""))
        if digest_of(old) != expected:
            raise FileChanged(f"{path} has changed")
        try:
            _write_over(file, data, len(old))
        except OSError:
            _write_over(file, old, 0)
            raise
        return info_of(os.fstat(file))


def _write_over(file: int, data: bytes, size: int) -> None:
    """Make `data` the content of the file, the part behind `size` first: without room, the old one is whole."""
    for start, end in ((size, len(data)), (0, min(size, len(data)))):
        if start < end:
            os.lseek(file, start, os.SEEK_SET)
            _write_all(file, data[start:end])
    os.ftruncate(file, len(data))
    os.fsync(file)


def restore_file(path: str, data: bytes | None, expected: str, mode: int) -> None:
    if os.path.realpath(path) != path:
        raise FileChanged(f"{path} is reached over a link now")
    if _digest(path) == (ABSENT if data is None else digest_of(data)):
        return
    if data is not None:
        replace_file(path, data, expected)
        if expected == ABSENT and mode:
            os.chmod(path, mode)
        return
    with _locked(os.path.dirname(path)):
        if _digest(path) != expected:
            raise FileChanged(f"{path} has changed")
        os.unlink(path)
    sync_directory(os.path.dirname(path))


_CHANGING = threading.Lock()  # for this process, as not every file system has locks


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Lock the directory, as far as it can be: the digest is checked again right before the change."""
    with _CHANGING, contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, file)
            _lock(file)
        yield


def _lock(file: int) -> None:
    deadline = time.monotonic() + _LOCK_WAIT
    while time.monotonic() < deadline:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.005)
        except OSError:
            return


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view[:_BLOCK]) :]


def _to_change(path: str) -> os.stat_result:
    try:
        old = os.lstat(path)
    except FileNotFoundError:
        raise FileChanged(f"{path} is gone") from None
    if not stat.S_ISREG(old.st_mode):
        raise FileChanged(f"{path} is no regular file any more")
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is not writable", path)
    return old


def _is_mounted(path: str, old: os.stat_result) -> bool:
    """Return whether a file is mounted by itself somewhere, as into a container, which would keep the old file."""
    for pid, source, place in all_mounts() if os.path.isdir("/proc") else ():
        if os.path.basename(source) == os.path.basename(path):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/root{place}"), old):
                    return True
    return False


def _copy_attributes(path: str, old: os.stat_result, file: int) -> bool:
    """Give a new file owner, attributes (as ACLs) and mode of the old one. Return whether that is possible."""
    mine = os.fstat(file)
    try:
        if (old.st_uid, old.st_gid) != (mine.st_uid, mine.st_gid):
            os.fchown(file, old.st_uid, old.st_gid)
        wanted, there = _attributes(path), _attributes(file)
        for name in there.keys() - wanted.keys():
            os.removexattr(file, name)
        for name, value in wanted.items():
            if there.get(name) != value:
                os.setxattr(file, name, value)
        os.fchmod(file, stat.S_IMODE(old.st_mode))
    except OSError:
        return False
    return True


def _attributes(file: str | int) -> dict[str, bytes]:
    try:
        names = os.listxattr(file)
    except (OSError, AttributeError):  # the file system or the system has none
        return {}
    return {name: os.getxattr(file, name) for name in names}


@contextlib.contextmanager
def _temporary(directory: str, mode: int) -> Iterator[tuple[str, int]]:
    temp = os.path.join(directory, f"{_TEMP_PREFIX}{new_mark()}")
    while True:
        file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        _lock(file)
        if os.path.lexists(temp):  # else a worker that starts has removed it before it was locked
            break
        os.close(file)
    try:
        yield temp, file
    finally:
        os.close(file)
        with contextlib.suppress(OSError):
            os.unlink(temp)


def remove_left_files(directories: Iterable[str]) -> None:
    """Remove what killed workers of this user left here, within two seconds; living ones lock their files."""
    until = time.monotonic() + _SWEEP_S
    for directory in dict.fromkeys(directories):
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if time.monotonic() > until:
                    return
                if _TEMP_NAME.fullmatch(entry.name):
                    with contextlib.suppress(OSError, FileChanged), _opened(entry.path) as file:
                        if os.fstat(file).st_uid == os.geteuid():
                            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                            os.unlink(entry.path)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        file = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOENT):
            raise FileChanged(f"{path} is gone") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileChanged(f"{path} is no regular file any more")
        yield file
    finally:
        os.close(file)


def _digest(path: str) -> str:
    sha = hashlib.sha256()
    try:
        with open_regular(path) as file:
            for block in iter(lambda: os.read(file, _BLOCK), b""):
                sha.update(block)
    except FileNotFoundError:
        return ABSENT
    return sha.hexdigest()


def rename_to_new(temp: str, path: str) -> bool:
    """Give a file its name, and keep the other one if it can be. Return False if there is a file of that name."""
    try:
        os.link(temp, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            return False
        os.rename(temp, path)
    return True


def sync_directory(directory: str) -> None:
    """Make the names in a directory durable, as far as its file system can."""
    with contextlib.suppress(OSError):
        file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
