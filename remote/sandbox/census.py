"""What acts outside of a cage later, in a session's directory, at any depth.

The kernel cannot forbid a name in directories that do not exist yet. So what exists is counted before a command starts
and after it has ended. A directory is read again only if its state shows that something in it has changed: no command
can set the time of that change.

The files with more than one name are counted with it. A file of which not every name is where commands may write is
also something else, such as a file in the store of a package manager.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Set
from itertools import islice
from typing import NamedTuple

from .git_names import Ask, GitSettings, repository_way, way
from .protected import AT_THE_TOP, AT_THE_TOP_IF_THERE, acts_later, is_repository, is_unknown
from .temporary import let_in

_MAX_DIRECTORIES = 200_000
_MAX_PROTECTED = 4000
_MAX_LINKED = 1000
_DEPTH, _MAX_ENTRIES = 2, 200  # of the links in a directory that acts later
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


class _Name(NamedTuple):
    """One of several names of a file. `links` is how many the file has."""

    path: str
    device: int
    number: int
    links: int


class Census:
    """Counts what acts later in the directory with the real path `top`."""

    def __init__(self, top: str) -> None:
        self.top = top
        self._states: dict[str, tuple[_State, bool]] = {}  # whether any later change shows in the state
        self._found: dict[str, list[str]] = {}  # by the directory in which they are
        self._unknown: dict[str, list[str]] = {}  # by the repository in which they are, or the top
        self._names: dict[str, list[_Name]] = {}  # of files with more than one, by the directory in which they are
        self._settings = GitSettings()

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

    def unknown(self, repositories: Set[str]) -> set[str]:
        """Return what nobody knows here, in the top directory and in those of which the `.git` is in `repositories`. An
        empty file does not count, as the stamps of a Makefile: it counts once there is something in it."""
        there = (path for path in self._unknown if path == self.top or f"{path}/.git" in repositories)
        return {name for path in there for name in self._unknown[path] if not _is_empty(name)}

    def protected(self, found: set[str]) -> list[str]:
        """Return the paths that a command may neither change nor make, when `found` is there. Raise TooLarge."""
        paths = [os.path.join(self.top, name) for name in AT_THE_TOP]
        paths += [path for name in AT_THE_TOP_IF_THERE if os.path.lexists(path := os.path.join(self.top, name))]
        paths += sorted(found)
        if len(self._states) > _MAX_DIRECTORIES:
            raise TooLarge(f"{self.top} holds more than {_MAX_DIRECTORIES:,} directories")
        if len(paths) > _MAX_PROTECTED:
            raise TooLarge(f"{self.top} holds more than {_MAX_PROTECTED:,} files that act outside of the cage later")
        if self.top in found:
            raise TooLarge(f"{self.top} is itself a repository of git, which cannot be protected")
        return list(dict.fromkeys(paths))

    def named_by_git(self, found: set[str], tops: Collection[str], ask: Ask) -> set[str]:
        """Return the paths below `tops` that act because a repository in `found` names them. They need not exist."""
        named: set[str] = set()
        for path in found:
            if os.path.basename(path) == ".git":
                named.update(self._settings.named_by(repository_way(path)[-1], os.path.dirname(path), ask))
            elif os.path.isdir(path) and not acts_later(os.path.basename(path)):
                named.update(self._settings.named_by(path, path, ask))
        return {path for path in named if is_below(path, tops)}

    def names(self) -> list[_Name]:
        """Return the names of files with more than one, but for what acts later and what is in it."""
        return [name for names in self._names.values() for name in names]

    def forget(self) -> None:
        """Read everything again next time: a link that somebody makes to a file shows in no directory of the file."""
        self._states.clear()
        self._found.clear()
        self._unknown.clear()
        self._names.clear()

    def _forget(self, path: str) -> None:
        self._states.pop(path, None)
        self._found.pop(path, None)
        self._unknown.pop(path, None)
        self._names.pop(path, None)

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
                    let_in(directory, _ENTERED)
                    state = _state(directory) or state
            names, inner, linked = _listed(directory)
            self._forget(directory)
            self._states[directory] = state, settled
            found = [os.path.join(directory, name) for name in names if acts_later(name)]
            if is_repository(names):
                found, inner = [*found, directory], []
            if directory == self.top or ".git" in names:
                self._unknown[directory] = [os.path.join(directory, name) for name in names if is_unknown(name)]
            if found:
                self._found[directory] = found
            if linked and directory not in found:
                self._names[directory] = linked
            waiting += [each for name in inner if (each := os.path.join(directory, name)) not in self._states]


def _is_empty(path: str) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return True
    return stat.S_ISREG(info.st_mode) and info.st_size == 0


def _state(path: str) -> _State | None:
    """Return the state of a directory, or None."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISDIR(info.st_mode):
        return None
    return _State(info.st_dev, info.st_ino, info.st_ctime_ns, info.st_mtime_ns, info.st_mode)


def _listed(directory: str) -> tuple[list[str], list[str], list[_Name]]:
    """Return the names in a directory, those among them of directories that do not count as a whole, and those of files
    that have more than one."""
    names: list[str] = []
    inner: list[str] = []
    linked: list[_Name] = []
    try:
        entries = os.scandir(directory)
    except OSError:
        return names, inner, linked
    with entries:
        for entry in entries:
            names.append(entry.name)
            if entry.is_dir(follow_symlinks=False):
                if not acts_later(entry.name):
                    inner.append(entry.name)
            elif not entry.is_symlink() and not acts_later(entry.name):
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    if info.st_nlink > 1:
                        linked.append(_Name(entry.path, info.st_dev, info.st_ino, info.st_nlink))
    return names, inner, linked


def linked_outside(names: Iterable[_Name], protected: Iterable[str]) -> list[str]:
    """Return the paths of the files of which a name is missing among these, or is protected. If there are too many, a
    directory stands for what is deepest."""
    places = dict.fromkeys(protected, True)  # by path: is it protected, or in what is
    seen: dict[tuple[int, int], list[_Name]] = {}
    for name in names:
        seen.setdefault((name.device, name.number), []).append(name)
    paths: set[str] = set()
    for same in seen.values():
        inside = [
            name.path for name in same if not places.get(name.path) and not _is_in(os.path.dirname(name.path), places)
        ]
        if len(inside) < max(name.links for name in same):
            paths.update(inside)
    while len(paths) > _MAX_LINKED:
        deepest = max(path.count("/") for path in paths)
        paths = {os.path.dirname(path) if path.count("/") == deepest else path for path in paths}
    return sorted(paths)


def _is_in(directory: str, places: dict[str, bool]) -> bool:
    if directory not in places:
        above = os.path.dirname(directory)
        places[directory] = above != directory and _is_in(above, places)
    return places[directory]


def steps(paths: Iterable[str], tops: Collection[str]) -> set[str]:
    """Return what is below `tops` of the links that these paths are or lead over, and of what stands at their ends. The
    links in a directory count, too, but not those deep in it."""
    found: list[str] = []
    for path in paths:
        ends = repository_way(path) if os.path.basename(path) == ".git" else way(path)
        found += ends
        if os.path.basename(path) != ".git" and is_below(ends[-1], tops):
            found += (step for link in _links_in(ends[-1], _DEPTH) for step in way(link)[1:])
    return {path for path in found if is_below(path, tops) and os.path.lexists(path)}


def _links_in(directory: str, depth: int) -> Iterator[str]:
    try:
        entries = os.scandir(directory)
    except (OSError, ValueError):
        return
    with entries:
        for entry in islice(entries, _MAX_ENTRIES):
            if entry.is_symlink():
                yield entry.path
            elif depth > 1 and entry.is_dir(follow_symlinks=False):
                yield from _links_in(entry.path, depth - 1)


def is_below(path: str, tops: Collection[str]) -> bool:
    return any(path.startswith(top + "/") for top in tops)
