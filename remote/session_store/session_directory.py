"""The directory of a session as the file system knows it: a directory may be moved."""

from __future__ import annotations

import asyncio
import contextlib
import os
from itertools import islice
from typing import Any, Callable, TypeVar

from ccb.tunnel.wire.spelling import spelled

T = TypeVar("T")

_ENTRIES = 32
_MAX_BESIDE = 10_000
_LOOK_S = 1.0


def is_same_directory(path: str, known: object) -> bool:
    """Return whether the directory has this identity, of which an entry must match: inodes are used again."""
    if not (isinstance(known, list) and len(known) == 2 and isinstance(known[1], dict)):  # it is from a file
        return False
    if identity_of(path)[0] != known[0]:
        return False
    for name, number in known[1].items():
        with contextlib.suppress(OSError):
            if os.lstat(os.path.join(path, str(name))).st_ino == number:
                return True
    return False


def identity_of(path: str) -> list[Any]:
    """Return what is_same_directory compares: the inode numbers of the directory and of some of its entries."""
    try:
        with os.scandir(path) as found:
            entries = {each.name: each.inode() for each in islice(found, _ENTRIES)}
        return [os.stat(path).st_ino, entries]
    except OSError:
        return [0, {}]


class SessionDirectory:
    """The directory `path` as it is now, also after it was moved. It is not held open: its disk can be unmounted."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._told = False
        self._look: asyncio.Future[Any] | None = None
        self._known = identity_of(path)

    def identity(self) -> list[Any]:
        """Return the identity that the directory had when it was last in its place."""
        now = identity_of(self._path)
        if now[0] == self._known[0]:
            self._known = now
        return self._known

    async def news(self) -> str:
        """Return once what the model must be told if the directory was moved."""
        new = None if self._told else await self.soon(self._moved_to)
        if not new or self._told:
            return ""
        self._told = True
        new = spelled(new)
        return (
            f"The directory of this session was moved: what was {spelled(self._path)} is {new} now. Name files by "
            f"their paths there. If the user wants to go on in {new}, they can resume the session from it."
        )

    def _moved_to(self) -> str:
        known, top = self.identity(), self._path
        try:
            if identity_of(top)[0] == known[0]:
                return ""
            while not os.path.isdir(os.path.dirname(top)):
                top = os.path.dirname(top)
            with os.scandir(os.path.dirname(top)) as beside:
                places = (each.path + self._path[len(top) :] for each in beside if not each.is_symlink())
                return next((each for each in islice(places, _MAX_BESIDE) if is_same_directory(each, known)), "")
        except OSError:
            return ""

    async def soon(self, look: Callable[[], T]) -> T | None:
        """Return what a look finds, None if a file server does not answer in time. One look at a time."""
        if self._look is not None and not self._look.done():
            return None
        found = self._look = asyncio.get_running_loop().run_in_executor(None, look)
        await asyncio.wait({found}, timeout=_LOOK_S)
        return found.result() if found.done() else None


def resumed_elsewhere(before: str, now: str) -> str:
    now, before = spelled(now), spelled(before)
    return (
        f"This session goes on in {now}. Before, its directory was {before}: what was said about paths below {before} "
        f"holds below {now}, if it is there."
    )


def moved_here(before: str, now: str, kept_before: str, kept_now: str) -> str:
    """Return what the model must be told of a session that has moved to this machine."""
    both = kept_before and kept_now
    kept = f" What was kept in {spelled(kept_before)} is in {spelled(kept_now)} now." if both else ""
    return (
        f"This session has moved to another machine. {resumed_elsewhere(before, now)}{kept} Programs, processes and "
        f"files outside of it are those of the other machine: look before you rely on them."
    )
