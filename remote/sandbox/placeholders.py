"""Empty directories that stand where a caged command must not create something.

A path that does not exist cannot be protected by a mount. So it exists, as an empty directory, while a command in the
cage for the workspace lives. An empty directory means nothing to git, editors and agents. Sessions in one project share
the directories, and the next session removes those of a worker that was killed: their mode tells whose they are.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence, Set

_MODE = 0o1700
_MOST_LISTS = 20
_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))
"""How mount points are written in mountinfo, the backslash last."""


class Placeholders:
    """Makes these directories, and removes each when no process is left that has it mounted."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._starting = 0

    @property
    def held(self) -> Set[str]:
        """The directories that are there because of this object, or of another session."""
        return self._held

    def make(self, paths: Sequence[str]) -> list[str]:
        """Make what does not exist, where this user could. Return the paths that exist now: those can be protected, and
        nobody in the cage can create the others. `started` must follow. Raise OSError."""
        self._starting += 1
        for path in paths:
            if not os.path.lexists(path) and os.access(os.path.dirname(path), os.W_OK):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(path, 0o700)
                    os.chmod(path, _MODE)
            if _is_placeholder(path):
                self._held.add(path)
        return [path for path in paths if os.path.lexists(path)]

    def started(self) -> None:
        """Note that a command has its mounts, or that it was not started."""
        self._starting -= 1

    def sweep(self) -> None:
        """Remove the directories that no living process needs. One that something has filled stays."""
        if self._starting or not self._held:
            return
        mounted = mounted_anywhere()
        for path in [path for path in self._held if path not in mounted]:
            with contextlib.suppress(OSError):
                os.rmdir(path)
            self._held.discard(path)


def _is_placeholder(path: str) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and stat.S_IMODE(info.st_mode) == _MODE and info.st_uid == os.geteuid()


def mounted_anywhere() -> set[str]:
    """Return the mount points of all mount namespaces in which a process lives that this user may look at."""
    seen: set[int] = set()
    points: set[str] = set()
    looked_at: set[str] = set()
    for _ in range(_MOST_LISTS):  # a process may fork while they are listed: then its child is new in the next list
        new = {name for name in os.listdir("/proc") if name.isdigit()} - looked_at
        if not new:
            break
        looked_at |= new
        for name in new:
            with contextlib.suppress(OSError):
                namespace = os.stat(f"/proc/{name}/ns/mnt").st_ino
                if namespace not in seen:
                    with open(f"/proc/{name}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                        points.update(line.split(" ", 5)[4] for line in file)
                    seen.add(namespace)
    return {_unescaped(point) for point in points}


def _unescaped(point: str) -> str:
    for escape, character in _ESCAPES if "\\" in point else ():
        point = point.replace(escape, character)
    return point
