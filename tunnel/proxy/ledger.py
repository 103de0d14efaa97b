"""The calls of one proxy by id: under way, or over and kept for a worker that comes back for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .call import Call

HOLD = 600.0
"""Seconds a call is kept while nobody reads it."""

MAX_HELD = 256
"""Most calls kept that are over; the oldest goes first."""

MAX_HELD_BYTES = 8 * 1024 * 1024
"""Most bytes kept of calls that are over; the oldest goes first."""


class Ledger:
    """An id stands for one call and one outcome until it is forgotten. `abort` ends a call that is still under way."""

    def __init__(self, abort: Callable[[Call], None], hold: float = HOLD) -> None:
        self._abort = abort
        self._hold = hold
        self._calls: dict[str, Call] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def find(self, call_id: str) -> Call | None:
        """The call of that id."""
        return self._calls.get(call_id)

    def taken(self, call: Call) -> None:
        """`call` has a reader again."""
        self._stop_clock(call.id)

    def add(self, call: Call) -> None:
        """A new call."""
        self._calls[call.id] = call

    def leave(self, call: Call) -> None:
        """Nobody reads `call` now; it is kept for HOLD seconds."""
        if self._calls.get(call.id) is not call:
            return
        self._stop_clock(call.id)
        loop = asyncio.get_running_loop()
        self._expiries[call.id] = loop.call_later(self._hold, self.drop, call)
        self._evict()

    def drop(self, call: Call) -> None:
        """Forget `call`, and abort it when it is under way."""
        if self._calls.get(call.id) is call:
            self._stop_clock(call.id)
            del self._calls[call.id]
            self._abort(call)

    def close(self) -> None:
        """Forget everything."""
        for call in list(self._calls.values()):
            self.drop(call)

    def _stop_clock(self, call_id: str) -> None:
        handle = self._expiries.pop(call_id, None)
        if handle is not None:
            handle.cancel()

    def _evict(self) -> None:
        kept = [call for call_id in self._expiries if (call := self._calls[call_id]).over]
        size = sum(call.held for call in kept)
        while kept and (len(kept) > MAX_HELD or size > MAX_HELD_BYTES):
            oldest = kept.pop(0)
            size -= oldest.held
            self.drop(oldest)
