"""Replace the content of a file, or restore an earlier one, in one atomic step. The functions block."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterator

from .process import new_mark
from .regular_files import ABSENT, FileChanged, FileInfo, digest_of, info_of, open_regular

_BLOCK = 1 << 20
_TEMP_PREFIX = ".ccb-"
_LOCK_WAIT = 1.0  # seconds


def replace_file(lock: threading.Lock, path: str, data: bytes, expected: str) -> FileInfo:
    directory = os.path.dirname(path)
    if expected == ABSENT:
        if os.path.lexists(path):
            raise FileChanged(f"{path} exists already")
        _make_directories(directory)
    temp = os.path.join(directory, f"{_TEMP_PREFIX}{new_mark()}")
    mode = 0o666 if expected == ABSENT else 0o600
    file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        try:
            _write_all(file, data)
            if expected != ABSENT:
                _copy_attributes(path, file)
            os.fsync(file)
            info = info_of(os.fstat(file))
        finally:
            os.close(file)
        if expected == ABSENT:
            _rename_to_new(temp, path)
        else:
            with lock, _locked(directory):
                if _digest(path) != expected:
                    raise FileChanged(f"{path} has changed")
                os.replace(temp, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temp)
        raise
    _sync_directory(directory)
    return info


def restore_file(lock: threading.Lock, path: str, data: bytes | None, expected: str, mode: int) -> None:
    if os.path.realpath(path) != path:
        raise FileChanged(f"{path} is reached over a link now")
    if _digest(path) == (ABSENT if data is None else digest_of(data)):
        return
    if data is not None:
        replace_file(lock, path, data, expected)
        if expected == ABSENT and mode:
            os.chmod(path, mode)
        return
    with lock, _locked(os.path.dirname(path)):
        if _digest(path) != expected:
            raise FileChanged(f"{path} has changed")
        os.unlink(path)
    _sync_directory(os.path.dirname(path))


def _make_directories(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Lock the directory, so that no other session of this machine checks a version that is about to be replaced. Go on
    without the lock if directories cannot be locked here, or another process keeps it: the digest is still checked
    right before the rename."""
    try:
        file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        deadline = time.monotonic() + _LOCK_WAIT
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.005)
            except OSError:
                break
        yield
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view[:_BLOCK]) :]


def _copy_attributes(path: str, file: int) -> None:
    try:
        old = os.stat(path)
    except FileNotFoundError:
        raise FileChanged(f"{path} is gone") from None
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is not writable", path)
    mine = os.fstat(file)
    if (old.st_uid, old.st_gid) != (mine.st_uid, mine.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(file, -1, old.st_gid)
        with contextlib.suppress(OSError):
            os.fchown(file, old.st_uid, -1)
    with contextlib.suppress(OSError, AttributeError):
        for name in os.listxattr(path):
            with contextlib.suppress(OSError):
                os.setxattr(file, name, os.getxattr(path, name))
    mine, mode = os.fstat(file), stat.S_IMODE(old.st_mode)
    if (old.st_uid, old.st_gid) != (mine.st_uid, mine.st_gid):
        mode &= ~(stat.S_ISUID | stat.S_ISGID)  # the program would run as another user now
    os.fchmod(file, mode)


def _digest(path: str) -> str:
    sha = hashlib.sha256()
    try:
        with open_regular(path) as file:
            offset = 0
            while True:
                block = os.pread(file, _BLOCK, offset)
                if not block:
                    return sha.hexdigest()
                sha.update(block)
                offset += len(block)
    except FileNotFoundError:
        return ABSENT


def _rename_to_new(temp: str, path: str) -> None:
    """Rename the temporary file to a new name. Raise FileChanged if a file of that name exists."""
    try:
        os.link(temp, path)
    except FileExistsError:
        raise FileChanged(f"{path} exists already") from None
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileChanged(f"{path} exists already") from None
        os.rename(temp, path)
        return
    os.unlink(temp)


def _sync_directory(directory: str) -> None:
    with contextlib.suppress(OSError):
        file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
