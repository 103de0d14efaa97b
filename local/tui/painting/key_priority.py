"""Keys before anything else: while one waits to be shown, work on what the agent writes stands still."""

from __future__ import annotations

import asyncio
import time

_HELD_S = 0.05
"""Seconds for which work stands still at most. A key that changes nothing on the screen is never shown."""

_FREE_S = 0.05
"""Seconds that work then has before the next key holds it."""

_SLICE_S = 0.004
"""CPU seconds of work in a row; then the event loop turns."""

_LOOK_S = 0.005


class KeyPriority:
    """Whether a key has come that is not on the screen yet."""

    def __init__(self) -> None:
        self._came_at = -_HELD_S - _FREE_S

    def came(self) -> None:
        """A key has come. The thread that reads the terminal calls this, before the event loop knows of the key."""
        now = time.monotonic()
        if now - self._came_at > _HELD_S + _FREE_S:
            self._came_at = now

    def shown(self) -> None:
        """What the keys have changed is on the screen."""
        self._came_at = -_HELD_S - _FREE_S

    @property
    def waits(self) -> bool:
        """Whether work should stand still for a key."""
        return time.monotonic() - self._came_at < _HELD_S


class WorkSlices:
    """Cuts work into slices of CPU time, between which the event loop turns and keys go first."""

    def __init__(self, keys: KeyPriority) -> None:
        self._keys = keys
        self._began = time.thread_time()

    async def next(self) -> None:
        """Call this after each small piece of work. It returns at once within a slice."""
        waits = self._keys.waits
        if waits or time.thread_time() - self._began > _SLICE_S:
            await asyncio.sleep(_LOOK_S if waits else 0)
            self._began = time.thread_time()
