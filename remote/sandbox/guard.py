"""Keeps what acts outside of a cage later as it is while commands run in the cage for the workspace.

What exists before a command is a mount that the command cannot change. What is new after it is set aside: nobody knows
a way to forbid a name in directories that the command makes itself. A person who makes such a file while a command
runs finds it set aside as well: nothing tells whose it is.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import field
from typing import NamedTuple

from ccb.tunnel.wire.dataclass import dataclass

from .aside import set_aside
from .census import Census, TooLarge, linked_outside, steps
from .git_names import Ask
from .protected import acts_later, is_unknown

_log = logging.getLogger(__name__)

_MAX_ROUNDS = 20
_MAX_OPEN = 200


class _Held(NamedTuple):
    """A file as it was when a command got it as a mount. As long as it is open, no other file gets its number."""

    file: int
    device: int
    number: int
    changed: int

    @staticmethod
    def of(path: str, opens: bool) -> _Held | None:
        """Return a path as it is now, None if it is not there."""
        try:
            file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC) if opens else -1
            info = os.fstat(file) if opens else os.lstat(path)
        except OSError:
            return None
        changed = 0 if opens or stat.S_ISDIR(info.st_mode) else info.st_ctime_ns
        return _Held(file, info.st_dev, info.st_ino, changed)

    def is_replaced(self, path: str) -> bool:
        """Return whether another file is there now, which no mount covers."""
        try:
            info = os.lstat(path)
        except OSError:
            return False
        same = (info.st_dev, info.st_ino) == (self.device, self.number)
        return not same or self.changed not in (0, info.st_ctime_ns)


@dataclass
class _Watched:
    """One directory. `known` was there before any living command, or was accepted, with what it led to in `tops`.
    `named` is what the configuration of git names, and `held` what living commands have as mounts."""

    census: Census
    tops: Collection[str] = ()
    known: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    held: dict[str, _Held] = field(default_factory=dict)

    def accept(self, found: set[str]) -> None:
        """Take what is there now for known, of which `found` acts later for sure."""
        self.known = found | steps(found | self.named, self.tops) | self.census.unknown(found)
        self.release()

    def hold(self, paths: Iterable[str]) -> None:
        for path in paths:
            held = None if path in self.held else _Held.of(path, len(self.held) < _MAX_OPEN)
            if held is not None:
                self.held[path] = held

    def release(self) -> None:
        for held in self.held.values():
            if held.file >= 0:
                os.close(held.file)
        self.held.clear()


class Guard:
    """Watches the session's directories from the first command on. It belongs to one thread at a time."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self._links_changed = False
        self._linked: set[str] = set()  # also elsewhere, when a command started

    def begin(
        self, tops: Sequence[str], alone: bool, ask: Ask, protected: Sequence[str] = ()
    ) -> tuple[list[str], list[str]]:
        """Return what the command that is about to start may neither change nor make, beside `protected`, and the files
        there that have another name elsewhere. `alone`: no other command lives, so all that is there now is accepted.
        `ask` tells the settings of git. Raise OSError, as TooLarge."""
        paths: list[str] = []
        for top in filter(os.path.isdir, tops):
            watched = self._watched.get(top) or _Watched(Census(top))
            accepts = alone or top not in self._watched
            if alone and self._links_changed:
                watched.census.forget()
            found = watched.census.take()
            named = watched.census.named_by_git(found, tops, ask)
            if accepts:
                watched.tops, watched.named = tops, named
                watched.accept(found)
            self._watched[top] = watched
            inside = [*watched.census.protected(found), *sorted(steps(found | named, tops))]
            watched.hold(inside)
            paths += inside
        self._links_changed = self._links_changed and not alone
        linked = self._linked_outside(tops, (*paths, *protected))
        if any(each in linked for each in tops):
            raise TooLarge("too many files there have another name (a hard link) outside of the session's directories")
        self._linked.update(linked)
        return list(dict.fromkeys(paths)), linked

    def check(self, ours: Set[str]) -> list[str]:
        """Set aside what is new, but for the paths that ccb itself has made. Return a line about each."""
        lines: list[str] = []
        for watched in self._watched.values():
            lines += _set_new_aside(watched, ours)
        return lines

    def newly_linked(self) -> list[str]:
        """Return a line about files that have another name elsewhere since the last command started."""
        new = [path for path in self._linked_outside(self._watched, ()) if path not in self._linked]
        self._linked.update(new)
        more = f" and {len(new) - 1:,} more" if new[1:] else ""
        return [f"{new[0]}{more}: hard links to files elsewhere, which that command could write"] if new else []

    def accept(self) -> None:
        """Take what is there now for known: something made it that a person has allowed to run without the cage. That
        may have linked files, which shows in no directory of theirs."""
        for watched in self._watched.values():
            watched.accept(watched.census.take())
        self._links_changed = True

    def acts_later(self, path: str) -> bool:
        """Return whether a file acts later, by its name or place, or because something leads to it."""
        return any(_acts_in(watched, path) for watched in self._watched.values())

    def _linked_outside(self, tops: Iterable[str], protected: Iterable[str]) -> list[str]:
        names = {name.path: name for top in tops if top in self._watched for name in self._watched[top].census.names()}
        return linked_outside(names.values(), protected)

    def release(self) -> None:
        """Close what is held open: no command lives."""
        for watched in self._watched.values():
            watched.release()


def _acts_in(watched: _Watched, path: str) -> bool:
    top = watched.census.top
    while path.startswith(top + "/"):
        above, name = os.path.split(path)
        if acts_later(name) or path in watched.held or path in watched.named:
            return True
        looked_at = above == top or f"{above}/.git" in watched.known
        if looked_at and is_unknown(name) and path not in watched.known:
            return True
        path = above
    return False


def _set_new_aside(watched: _Watched, ours: Set[str]) -> list[str]:
    lines: list[str] = []
    left = set(ours)
    for _ in range(_MAX_ROUNDS):  # what is set aside may hold more
        found = watched.census.take()
        found |= steps(found | watched.named, watched.tops) | watched.census.unknown(watched.known)
        watched.known &= found
        replaced = {path for path, held in watched.held.items() if held.is_replaced(path)}
        new = (found - watched.known | replaced) - left
        if not new:
            break
        for path in sorted(new):
            top = max((each for each in watched.tops if f"{path}/".startswith(f"{each}/")), key=len)
            try:
                renamed, new_name = set_aside(top, path)
                why = " (it was replaced while a command in the sandbox ran)" if path in replaced else ""
                lines.append(f"{os.path.relpath(renamed, top)} is now {new_name}{why}")
            except FileNotFoundError:
                continue  # it was in what was set aside before it
            except OSError as error:
                left.add(path)
                lines.append(f"{os.path.relpath(path, top)} could not be set aside: {error.strerror}")
    if lines:
        _log.warning("set aside in %s: %s", watched.census.top, "; ".join(lines[:20]))
    return lines
