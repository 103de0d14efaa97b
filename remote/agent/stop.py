"""The person's wish to end a turn as soon as possible."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")

_CANCEL_GRACE = 5.0


class Interrupted(Exception):
    """The person interrupted the turn, or ended it by denying a call."""


class StopSignal:
    """Is set once, when the turn is to end."""

    def __init__(self) -> None:
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_set(self) -> bool:
        return self._stop.done()

    def set(self) -> None:
        """End the turn as soon as possible. Idempotent."""
        if not self._stop.done():
            self._stop.set_result(None)

    async def unless_set(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. When the turn is stopped before that, cancel `work`, wait for its end, and raise
        Interrupted."""
        task = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {task, self._stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Interrupted
            if task.cancelled():  # cancelled by someone else; raising CancelledError would lose the result of the turn
                raise RuntimeError("a part of the turn was cancelled from outside")
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_CANCEL_GRACE)
            if task.done() and not task.cancelled():
                task.exception()
