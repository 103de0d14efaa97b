"""The throwaway directories that caged commands have as TMPDIR."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import threading

_PREFIX = "ccb-cage-"


class TemporaryDirectories:
    """Makes a directory for each command in one directory of this process, and removes it when the command has ended.
    Where nothing can be made, "" stands for no directory."""

    def __init__(self) -> None:
        self._top = ""
        self._count = 0

    def make(self) -> str:
        """Return the real path of a new directory."""
        if not os.path.isdir(self._top):  # also where the system has removed it as too old
            self._top = ""
        try:
            if not self._top:
                _remove_orphans(tempfile.gettempdir())
                self._top = os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{_space_of_pids()}-{os.getpid()}-"))
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
            threading.Thread(target=_remove, args=(path,), name="cage-tmp", daemon=True).start()

    def close(self) -> None:
        """Remove everything that is left."""
        if self._top:
            _remove(self._top)
            self._top = ""


def _space_of_pids() -> int:
    """Return the number of the PID namespace: containers may share a directory for temporary files."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _remove_orphans(directory: str) -> None:
    """Remove what killed workers of this user have left."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            space, _, rest = name[len(_PREFIX) :].partition("-")
            pid = rest.partition("-")[0]
            if name.startswith(_PREFIX) and space == str(_space_of_pids()) and pid.isdigit():
                path = os.path.join(directory, name)
                info = os.lstat(path)
                ours = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
                if ours and not os.path.isdir(f"/proc/{pid}"):
                    threading.Thread(target=_remove, args=(path,), name="cage-tmp").start()


def _remove(top: str) -> None:
    """Remove a directory with all that a command may have made in it, as directories that nobody may enter."""
    shutil.rmtree(top, ignore_errors=True)
    if not os.path.isdir(top):
        return
    for directory, names, _ in os.walk(top):
        for name in names:
            with contextlib.suppress(OSError):
                _let_in(os.path.join(directory, name))
    shutil.rmtree(top, ignore_errors=True)


def _let_in(path: str) -> None:
    """Let this user enter a directory. A link in its place is not followed."""
    file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{file}", 0o700)
    finally:
        os.close(file)
