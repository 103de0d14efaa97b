"""What acts outside of a cage later, in a session's directory, at any depth.

The kernel cannot forbid a name in directories that do not exist yet. So what exists is counted before a command starts
and after it has ended. A directory is read again only if its state shows that something in it has changed: no command
can set the time of that change.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import NamedTuple

from .git_names import named_by, repository_of
from .protected import AT_THE_TOP, AT_THE_TOP_IF_THERE, acts_later, is_repository

_MAX_DIRECTORIES = 200_000
_MAX_PROTECTED = 4000
_ENTERED = stat.S_IRUSR | stat.S_IXUSR
_TICK_NS = 2_500_000_000
"""The coarsest clock of a file system: a directory that has changed so recently may change again within the tick."""


class TooLarge(OSError):
    """A directory in which not everything can be counted and protected."""


class _State(NamedTuple):
    device: int
    number: int
    changed: int
    modified: int
    mode: int


class Census:
    """Counts what acts later in the directory with the real path `top`."""

    def __init__(self, top: str) -> None:
        self.top = top
        self._states: dict[str, tuple[_State, bool]] = {}  # whether any later change shows in the state
        self._found: dict[str, list[str]] = {}  # by the directory in which they are

    def take(self) -> set[str]:
        """Return the paths that are there now. Links are not followed. A directory that git takes for a repository
        without a `.git` counts as a whole."""
        changed = []
        for path, (old, settled) in list(self._states.items()):
            new = _state(path)
            if new is None:
                self._forget(path)
            elif new != old or not settled:
                changed.append(path)
        insist = bool(self._states)
        for path in changed if insist else [self.top]:
            self._read(path, insist)
        return {path for found in self._found.values() for path in found}

    def protected(self, found: set[str]) -> list[str]:
        """Return the paths that a command may neither change nor make, when `found` is there. Raise TooLarge."""
        paths = [os.path.join(self.top, name) for name in AT_THE_TOP]
        paths += [path for name in AT_THE_TOP_IF_THERE if os.path.lexists(path := os.path.join(self.top, name))]
        paths += [*sorted(found), *(path for each in sorted(found) for path in self._led_to(each))]
        if len(self._states) > _MAX_DIRECTORIES:
            raise TooLarge(f"{self.top} holds more than {_MAX_DIRECTORIES:,} directories")
        if len(paths) > _MAX_PROTECTED:
            raise TooLarge(f"{self.top} holds more than {_MAX_PROTECTED:,} files that act outside of the cage later")
        if self.top in found:
            raise TooLarge(f"{self.top} is itself a repository of git, which cannot be protected")
        return list(dict.fromkeys(paths))

    def named_by_git(self, found: set[str]) -> set[str]:
        """Return the paths that act because a repository in `found` names them. They need not exist."""
        named: set[str] = set()
        for path in found:
            if os.path.basename(path) == ".git":
                named.update(named_by(repository_of(path), os.path.dirname(path), self.top))
            elif os.path.isdir(path) and not acts_later(os.path.basename(path)):
                named.update(named_by(path, path, self.top))
        return named

    def _led_to(self, path: str) -> list[str]:
        """Return what stands behind a path that is found, where it is elsewhere in the directory."""
        target = repository_of(path) if os.path.basename(path) == ".git" else os.path.realpath(path)
        return [target] if target != path and target.startswith(self.top + "/") and os.path.lexists(target) else []

    def _forget(self, path: str) -> None:
        self._states.pop(path, None)
        self._found.pop(path, None)

    def _read(self, path: str, insist: bool) -> None:
        """Read a directory, and those in it that were not read before. `insist`: also those whose mode forbids it, as a
        command may have made them."""
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            state = _state(directory)
            if state is None:
                self._forget(directory)
                continue
            settled = max(state.changed, state.modified) < time.time_ns() - _TICK_NS
            if insist and stat.S_IMODE(state.mode) & _ENTERED != _ENTERED and os.geteuid():
                with contextlib.suppress(OSError):
                    _let_in(directory)
                    state = _state(directory) or state
            names, inner = _listed(directory)
            self._states[directory] = state, settled
            found = [os.path.join(directory, name) for name in names if acts_later(name)]
            if is_repository(names):
                found, inner = [*found, directory], []
            self._found.pop(directory, None)
            if found:
                self._found[directory] = found
            waiting += [each for name in inner if (each := os.path.join(directory, name)) not in self._states]


def _state(path: str) -> _State | None:
    """Return the state of a directory, or None."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISDIR(info.st_mode):
        return None
    return _State(info.st_dev, info.st_ino, info.st_ctime_ns, info.st_mtime_ns, info.st_mode)


def _listed(directory: str) -> tuple[list[str], list[str]]:
    """Return the names in a directory, and those among them of directories that do not count as a whole."""
    try:
        entries = os.scandir(directory)
    except OSError:
        return [], []
    names, inner = [], []
    with entries:
        for entry in entries:
            names.append(entry.name)
            if entry.is_dir(follow_symlinks=False) and not acts_later(entry.name):
                inner.append(entry.name)
    return names, inner


def _let_in(directory: str) -> None:
    """Let this user enter a directory of its own that it could not list: a file in it may be found by its name, and
    more of them once somebody opens it. Raise OSError."""
    file = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{file}", stat.S_IMODE(os.fstat(file).st_mode) | stat.S_IRUSR | stat.S_IXUSR)
    finally:
        os.close(file)
