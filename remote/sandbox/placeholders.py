"""Empty directories that stand where a caged command must not create something.

A path that does not exist cannot be protected by a mount. So it exists, as an empty directory, while a command in the
cage for the workspace lives. An empty directory means nothing to git, editors and agents.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence


class Placeholders:
    """Makes these directories, and removes them when no process is left in the mount namespaces that need them."""

    def __init__(self) -> None:
        self._made: set[str] = set()
        self._namespaces: set[int] = set()
        self._starting = 0

    def make(self, paths: Sequence[str]) -> None:
        """Make what does not exist, where this user could. `started` must follow. Raise OSError."""
        self._starting += 1
        for path in paths:
            if not os.path.lexists(path) and os.access(os.path.dirname(path), os.W_OK):
                os.mkdir(path, 0o700)
                self._made.add(path)

    def started(self, namespace: int) -> None:
        """Note the mount namespace of a command; 0 if it was not started."""
        self._starting -= 1
        if namespace:
            self._namespaces.add(namespace)

    def sweep(self) -> None:
        """Remove the directories if nothing lives that needs them."""
        if self._starting or not self._made:
            return
        self._namespaces &= _live_namespaces() | _live_namespaces()  # twice: a process may fork while they are listed
        if not self._namespaces:
            self.remove()

    def remove(self) -> None:
        """Remove the directories. One that something else has filled stays."""
        for path in self._made:
            with contextlib.suppress(OSError):
                os.rmdir(path)
        self._made.clear()


def _live_namespaces() -> set[int]:
    """Return the mount namespaces of the processes that this user may look at."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                found.add(os.stat(f"/proc/{name}/ns/mnt").st_ino)
    return found
