"""Looks whether files change, for FileChanged hooks. It asks for their states once a second: that works on every file
system, and no other program takes part."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import Callable, Optional

_EVERY_S = 1.0
_MAX_FILES = 100

State = Optional[tuple[int, int, int]]


class FileWatch:
    """`changed` is called with the path of a file and what happened to it: `add`, `change` or `unlink`."""

    def __init__(self, changed: Callable[[str, str], None]) -> None:
        self._changed = changed
        self._paths: tuple[str, ...] = ()
        self._task: asyncio.Task[None] | None = None

    def watch(self, paths: Iterable[str]) -> None:
        """Watch these files, the first 100 of them, in place of those of the last call."""
        self._paths = tuple(dict.fromkeys(paths))[:_MAX_FILES]
        if self._paths and self._task is None:
            self._task = asyncio.ensure_future(self._look())

    async def close(self) -> None:
        """Watch no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _look(self) -> None:
        known: dict[str, State] = {}
        loop = asyncio.get_running_loop()
        while True:
            now = await loop.run_in_executor(None, _states, self._paths)
            for path, event in _events(known, now):
                self._changed(path, event)
            known = now
            await asyncio.sleep(_EVERY_S)


def _events(before: Mapping[str, State], now: Mapping[str, State]) -> Iterable[tuple[str, str]]:
    """Yield what happened to files that were watched before, too."""
    for path, state in now.items():
        if path in before and state != before[path]:
            yield path, "unlink" if state is None else "add" if before[path] is None else "change"


def _states(paths: Iterable[str]) -> dict[str, State]:
    return {path: _state(path) for path in paths}


def _state(path: str) -> State:
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino
