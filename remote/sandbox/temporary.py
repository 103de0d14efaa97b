"""The throwaway directories that caged commands have as TMPDIR."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import threading

_PREFIX = "ccb-cage-"
_NAME = re.compile(_PREFIX + r"[\d-]+-\w+")


class TemporaryDirectories:
    """Makes a directory for each command in one directory of this process, and removes it when the command has ended.
    Where nothing can be made, "" stands for no directory. This process holds a lock on its directory; the first use
    removes those whose process was killed."""

    def __init__(self) -> None:
        self._top = ""
        self._lock = -1
        self._count = 0

    @property
    def mark(self) -> str:
        """A directory that is there as long as this object, "" if none was made."""
        return f"{self._top}/mark" if self._top else ""

    def make(self) -> str:
        """Return the real path of a new directory."""
        if not os.path.isdir(self._top):  # also where the system has removed it as too old
            self._let_go()
        try:
            if not self._top:
                self._make_top()
            self._count += 1
            path = os.path.join(self._top, str(self._count))
            os.mkdir(path, 0o700)
        except OSError:
            return ""
        return path

    def remove(self, path: str) -> None:
        """Remove a directory. A large one is removed by a thread."""
        if not path:
            return
        try:
            os.rmdir(path)
        except OSError:
            threading.Thread(target=remove_directory, args=(path,), name="cage-tmp", daemon=True).start()

    def close(self) -> None:
        """Remove everything that is left."""
        if self._top:
            remove_directory(self._top)
        self._let_go()

    def _make_top(self) -> None:
        """Make the directory of this process, with its lock. Raise OSError."""
        import tempfile

        for _ in range(3):  # another process may take it for one that was left, before it is locked
            top = os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
            lock = _locked(top)
            if lock >= 0:
                self._top, self._lock = top, lock
                os.mkdir(self.mark, 0o700)
                threading.Thread(target=_remove_left, name="cage-tmp").start()
                return
        raise OSError("no directory could be locked")

    def _let_go(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._top, self._lock = "", -1


def left_directories() -> list[str]:
    """Return the directories of this user's processes that are gone, as after `kill -9`."""
    import tempfile

    found = []
    tops = ["/tmp", "/var/tmp"]  # noqa: S108
    with contextlib.suppress(OSError):  # no directory is writable: this process has made none, but an earlier one may
        tops.append(tempfile.gettempdir())
    for top in dict.fromkeys(map(os.path.realpath, tops)):
        with contextlib.suppress(OSError):
            for name in os.listdir(top):
                path = os.path.join(top, name)
                lock = _locked(path) if _NAME.fullmatch(name) else -1
                if lock >= 0:
                    os.close(lock)
                    found.append(path)
    return found


def _remove_left() -> None:
    for path in left_directories():
        remove_directory(path)


def _locked(path: str) -> int:
    """Return a descriptor that holds the lock of a directory of this user; -1 if another process holds it, or if it is
    no such directory."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        here, there = os.fstat(lock), os.lstat(path)
        if here.st_ino == there.st_ino and here.st_uid == os.getuid() and stat.S_ISDIR(there.st_mode):
            return lock
    except OSError:
        pass
    os.close(lock)
    return -1


def remove_directory(top: str) -> None:
    """Remove a directory with all that a command may have made in it, as directories that nobody may enter."""
    import shutil

    shutil.rmtree(top, ignore_errors=True)
    if os.path.isdir(top):
        open_up(top)
        shutil.rmtree(top, ignore_errors=True)


def open_up(top: str) -> None:
    """Let this user enter all directories in a directory."""
    for directory, names, _ in os.walk(top):
        for name in names:
            with contextlib.suppress(OSError):
                let_in(os.path.join(directory, name))


def let_in(directory: str, mode: int = stat.S_IRWXU) -> None:
    """Add to the mode of a directory of this user. A link in its place is not followed. Raise OSError."""
    file = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{file}", stat.S_IMODE(os.fstat(file).st_mode) | mode)
    finally:
        os.close(file)
