"""Placeholders and TMPDIRs of cages. Only what exists can be protected by a mount, so an empty directory stands for
what does not while a command lives. Its mode tells whose it is, a shared lock that a command is about to mount it. What
a killed worker leaves is removed by the next session there, `ccb gc` and `clean`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence, Set

from .cage_rules import AT_THE_TOP

_MODE = 0o1700
_MAX_LISTS = 20
_MAX_TRIES = 200
_PAUSE_S = 0.005
_ESCAPE = re.compile(r"\\([0-7]{3})")  # of mountinfo


class Placeholders:
    """Makes these directories, and removes each when no process is left that has it mounted."""

    def __init__(self) -> None:
        self._held: set[str] = set()

    @property
    def held(self) -> Set[str]:
        """The directories that are there because of this or another session; a file may have taken the place of one."""
        return {path for path in self._held if _is_placeholder(path)}

    @contextlib.contextmanager
    def made(self, paths: Sequence[str]) -> Iterator[list[str]]:
        """Make what this user could, and keep it until the context ends. Return the paths that exist. Raise OSError."""
        with contextlib.ExitStack() as locks:
            for path in paths:
                for _ in range(_MAX_TRIES):  # another session may be about to remove it
                    if not os.path.lexists(path) and os.access(os.path.dirname(path), os.W_OK):
                        with contextlib.suppress(FileExistsError):
                            os.mkdir(path, 0o700)
                            os.chmod(path, _MODE)
                    if not _is_placeholder(path):
                        break
                    lock = _locked(path, fcntl.LOCK_SH)
                    if lock >= 0:
                        locks.callback(os.close, lock)
                        self._held.add(path)
                        break
                    time.sleep(_PAUSE_S)
            yield [path for path in paths if os.path.lexists(path)]

    def sweep(self) -> None:
        """Remove the directories that no living process needs. One that something has filled stays."""
        remove_unneeded(self._held)
        self._held = {path for path in self._held if _is_placeholder(path)}


def places_in(directories: Iterable[str]) -> list[str]:
    """Return where placeholders may be in directories of sessions."""
    return [os.path.join(directory, name) for directory in directories for name in AT_THE_TOP]


def remove_unneeded(paths: Iterable[str]) -> None:
    with unneeded(paths) as found:
        for path in found:
            with contextlib.suppress(OSError):
                os.rmdir(path)


@contextlib.contextmanager
def unneeded(paths: Iterable[str]) -> Iterator[list[str]]:
    """Return which of the paths are placeholders that no process needs, until the context ends."""
    with contextlib.ExitStack() as locks:
        free = []
        for path in filter(_is_placeholder, paths):
            lock = _locked(path, fcntl.LOCK_EX)
            if lock >= 0:
                locks.callback(os.close, lock)
                free.append(path)
        mounted = mounted_anywhere() if free else set()
        yield [path for path in free if path not in mounted]


def _locked(path: str, how: int, needs_lock: bool = False) -> int:
    """Return a descriptor that locks a directory; -1 if another process has it, or no locks that it `needs_lock`."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
        is_locked = True
    except OSError as error:  # another process has it, or there are no locks here
        is_locked = not (needs_lock or isinstance(error, BlockingIOError))
    with contextlib.suppress(FileNotFoundError):
        if is_locked and os.fstat(lock).st_ino == os.lstat(path).st_ino:
            return lock
    os.close(lock)
    return -1


def _is_placeholder(path: str) -> bool:
    with contextlib.suppress(OSError):
        info = os.lstat(path)
        return stat.S_ISDIR(info.st_mode) and stat.S_IMODE(info.st_mode) == _MODE and info.st_uid == os.geteuid()
    return False


def mounted_anywhere() -> set[str]:
    """Return the mount points of all mount namespaces in which a process lives that this user may look at."""
    return {place for _, _, place in all_mounts()}


def all_mounts() -> Iterator[tuple[str, str, str]]:
    """Yield the mounts of these namespaces: a process that has it, what is mounted, and where."""
    seen: set[int] = set()
    looked_at: set[str] = set()
    for _ in range(_MAX_LISTS):  # a process may fork while they are listed: then its child is new in the next list
        new = {name for name in os.listdir("/proc") if name.isdigit()} - looked_at
        if not new:
            break
        looked_at |= new
        for name in new:
            with contextlib.suppress(OSError):
                namespace = os.stat(f"/proc/{name}/ns/mnt").st_ino
                if namespace not in seen:
                    with open(f"/proc/{name}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                        lines = [line.split(" ", 5) for line in file]
                    seen.add(namespace)
                    yield from ((name, _unescaped(each[3]), _unescaped(each[4])) for each in lines)


def _unescaped(path: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), path)


_PREFIX = "ccb-cage-"
_NAME = re.compile(_PREFIX + r"[\d-]+-\w+")


class TemporaryDirectories:
    """Makes a directory for each command in a locked one of this process, "" where none can be made."""

    def __init__(self) -> None:
        self._top = ""
        self._lock = -1
        self._count = 0

    @property
    def mark(self) -> str:
        """A directory that is there as long as this object, "" if none was made."""
        return f"{self._top}/mark" if self._top else ""

    def make(self) -> str:
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
        if self._top:
            remove_directory(self._top)
        self._let_go()

    def _make_top(self) -> None:
        import tempfile

        for _ in range(3):  # another process may take it for one that was left, before it is locked
            top = os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
            lock = _temporary_locked(top)
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
                lock = _temporary_locked(path) if _NAME.fullmatch(name) else -1
                if lock >= 0:
                    os.close(lock)
                    found.append(path)
    return found


def _remove_left() -> None:
    for path in left_directories():
        remove_directory(path)


def _temporary_locked(path: str) -> int:
    """Return a descriptor that holds the lock of a directory of this user; -1 for none."""
    lock = _locked(path, fcntl.LOCK_EX, needs_lock=True)
    if lock >= 0 and os.fstat(lock).st_uid != os.getuid():
        os.close(lock)
        return -1
    return lock


def remove_directory(top: str) -> None:
    """Remove a directory with all that a command may have made in it, as directories that nobody may enter."""
    import shutil

    shutil.rmtree(top, ignore_errors=True)
    if os.path.isdir(top):
        open_up(top)
        shutil.rmtree(top, ignore_errors=True)


def open_up(top: str) -> None:
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
