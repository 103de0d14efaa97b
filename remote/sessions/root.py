"""The directory of a session as the file system knows it, under whatever name: a directory may be moved."""

from __future__ import annotations

import asyncio
import os
from itertools import islice
from typing import Any, Callable, TypeVar

from ccb.tunnel.wire.spelling import spelled

T = TypeVar("T")

_ENTRIES = 32
_DELETED = " (deleted)"
_LOOK_S = 1.0


def is_same_directory(path: str, known: object) -> bool:
    """Return whether the directory at `path` is the one of this identity (see `Root.identity`). Inode numbers are used
    again, so one of its entries must be the same, too."""
    if not (isinstance(known, list) and len(known) == 2 and isinstance(known[1], dict)):  # it is from a file
        return False
    try:
        if os.stat(path).st_ino != known[0]:
            return False
    except OSError:
        return False
    return any(_number(os.path.join(path, str(name))) == each for name, each in known[1].items())


def _number(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


class Root:
    """The directory `path` as it is now, also after it was moved. Close it at the end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._told = False
        self._look: asyncio.Future[Any] | None = None
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def identity(self) -> list[Any]:
        """Return what is_same_directory compares: the inode numbers of the directory and of some of its entries."""
        try:
            with os.scandir(self._fd) as found:
                entries = {each.name: each.inode() for each in islice(found, _ENTRIES)}
            return [os.fstat(self._fd).st_ino, entries]
        except (OSError, TypeError):
            return [0, {}]

    async def identity_now(self) -> list[Any] | None:
        """Return the identity, None if the file system does not answer."""
        return await self._soon(self.identity)

    async def news(self) -> str:
        """Return what the model must be told, once: that the directory was moved; "" for nothing."""
        new = None if self._told else await self._soon(self._moved_to)
        if not new or self._told:
            return ""
        self._told = True
        new = spelled(new)
        return (
            f"The directory of this session was moved: what was {spelled(self._path)} is {new} now. Name files by "
            f"their paths there. If the user wants to go on in {new}, they can resume the session from it."
        )

    def _moved_to(self) -> str:
        """Return the new path of a directory that was moved, "" for one that was not, or that is gone."""
        try:
            own = os.fstat(self._fd)
            try:
                if os.path.samestat(os.stat(self._path), own):
                    return ""
            except OSError:
                pass
            new = os.readlink("/proc/self/fd/%d" % self._fd)
            return new if not new.endswith(_DELETED) and os.path.samestat(os.stat(new), own) else ""
        except OSError:
            return ""

    async def _soon(self, look: Callable[[], T]) -> T | None:
        """Return what a look at the file system finds, None if that takes long: a server of files may be gone. Its
        thread is stuck then, so there is no other look before that one ends."""
        if self._look is not None and not self._look.done():
            return None
        found = self._look = asyncio.get_running_loop().run_in_executor(None, look)
        await asyncio.wait({found}, timeout=_LOOK_S)
        return found.result() if found.done() else None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def resumed_elsewhere(before: str, now: str) -> str:
    """Return what the model is told of a session that goes on in another directory."""
    now, before = spelled(now), spelled(before)
    return (
        f"This session goes on in {now}. Before, its directory was {before}: what was said about paths below {before} "
        f"holds below {now}, if it is there."
    )
