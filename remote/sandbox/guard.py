"""Keeps what acts outside of a cage later as it is while commands run in the cage for the workspace.

What exists before a command is a mount that the command cannot change. What is new after it is set aside: nobody knows
a way to forbid a name in directories that the command makes itself. A person who makes such a file while a command
runs finds it set aside as well: nothing tells whose it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence, Set
from dataclasses import field

from ccb.tunnel.wire.dataclass import dataclass

from .aside import set_aside
from .census import Census, TooLarge, linked_outside

_log = logging.getLogger(__name__)

_MAX_ROUNDS = 20


@dataclass
class _Watched:
    """One directory. `known` was there before any living command, or was accepted. `missing` was not, and is named by
    the configuration of git."""

    census: Census
    known: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)

    def accept(self) -> set[str]:
        """Take what is there now for known. Return what of it acts later for sure."""
        found = self.census.take()
        self.known = found | self.census.unknown(found)
        return found


class Guard:
    """Watches the session's directories from the first command on. It belongs to one thread at a time."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}

    def begin(self, tops: Sequence[str], alone: bool, protected: Sequence[str] = ()) -> tuple[list[str], list[str]]:
        """Return what the command that is about to start may neither change nor make, beside `protected`, and the files
        there that have another name elsewhere. `alone`: no other command lives, so all that is there now is accepted.
        Raise TooLarge."""
        paths: list[str] = []
        for top in filter(os.path.isdir, tops):
            watched = self._watched.get(top) or _Watched(Census(top))
            accepts = alone or top not in self._watched
            found = watched.accept() if accepts else watched.census.take()
            self._watched[top] = watched
            named = watched.census.named_by_git(found)
            if accepts:
                watched.missing = {path for path in named if not os.path.lexists(path)}
            paths += watched.census.protected(found)
            there = sorted(path for path in named if os.path.lexists(path))
            paths += [*there, *(real for real in map(os.path.realpath, there) if real.startswith(top + "/"))]
        names = {name.path: name for top in tops if top in self._watched for name in self._watched[top].census.names()}
        linked = linked_outside(names.values(), (*paths, *protected))
        if any(each in linked for each in tops):
            raise TooLarge("too many files there have another name (a hard link) outside of the session's directories")
        return list(dict.fromkeys(paths)), linked

    def check(self, ours: Set[str]) -> list[str]:
        """Set aside what is new, but for the paths that ccb itself has made. Return a line about each."""
        lines: list[str] = []
        for watched in self._watched.values():
            lines += _set_new_aside(watched, ours)
        return lines

    def accept(self) -> None:
        """Take what is there now for known: something made it that a person has allowed to run without the cage."""
        for watched in self._watched.values():
            watched.census.forget()
            watched.accept()
            watched.missing = {path for path in watched.missing if not os.path.lexists(path)}

    def accept_path(self, path: str) -> None:
        """Take a file that a person has allowed to be written for known, with the directories above it."""
        for top, watched in self._watched.items():
            while path.startswith(top + "/"):
                watched.known.add(path)
                watched.missing.discard(path)
                path = os.path.dirname(path)


def _set_new_aside(watched: _Watched, ours: Set[str]) -> list[str]:
    lines: list[str] = []
    left = set(ours)
    top = watched.census.top
    for _ in range(_MAX_ROUNDS):  # what is set aside may hold more
        found = watched.census.take()
        found |= watched.census.unknown(watched.known)
        watched.known &= found
        new = (found - watched.known | {path for path in watched.missing if os.path.lexists(path)}) - left
        if not new:
            break
        for path in sorted(new):
            try:
                renamed, new_name = set_aside(top, path)
                lines.append(f"{os.path.relpath(renamed, top)} is now {new_name}")
            except FileNotFoundError:
                continue  # it was in what was set aside before it
            except OSError as error:
                left.add(path)
                lines.append(f"{os.path.relpath(path, top)} could not be set aside: {error.strerror}")
    if lines:
        _log.warning("set aside in %s: %s", top, "; ".join(lines[:20]))
    return lines
