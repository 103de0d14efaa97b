"""The calls of one auth proxy by id: running calls, and finished ones that are kept for a worker that reconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .call import BUFFER, Call

HOLD = 600.0
"""Seconds a call without a reader is kept. Only time with a link counts: without one nobody can ask for the call."""

READ_AHEAD = 64 * 1024 * 1024
"""Bytes that all calls without a reader may hold together. Each has an equal share; at its share its provider waits."""

MAX_HELD = 256
"""How many finished calls without a reader are kept. Beyond it the oldest is forgotten."""

MAX_HELD_BYTES = 8 * 1024 * 1024
"""How many bytes the finished calls without a reader may hold. Beyond it the oldest is forgotten."""


class CallRegistry:
    """Finds calls by id. An id stands for one call and one outcome until it is forgotten.

    While the link is down nothing is forgotten: a response that was paid for is there when the worker comes back,
    however late. `abort` is called for every call that is forgotten; it ends one that is under way.
    """

    def __init__(self, abort: Callable[[Call], None], hold: float = HOLD) -> None:
        self._abort = abort
        self._hold = hold
        self._calls: dict[str, Call] = {}
        self._unread: dict[str, Call] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._link_down = False

    def __len__(self) -> int:
        return len(self._calls)

    def find(self, call_id: str) -> Call | None:
        """Return the call with this id, or None."""
        return self._calls.get(call_id)

    def all(self) -> list[Call]:
        """Return every call."""
        return list(self._calls.values())

    def add(self, call: Call) -> None:
        """Register a new call."""
        self._calls[call.id] = call

    def reader_came(self, call: Call) -> None:
        """Stop the clock of `call`: it has a reader again."""
        self._stop_clock(call.id)
        self._unread.pop(call.id, None)
        call.limit = BUFFER
        self._share()

    def reader_left(self, call: Call) -> None:
        """Start the clock of `call`, which has no reader now: keep it for HOLD seconds, counted while the link is
        up."""
        if self._calls.get(call.id) is not call:
            return
        self._unread[call.id] = call
        self._share()
        if not self._link_down:
            self._start_clock(call)
            self._evict()

    def link_down(self) -> None:
        """Stop the clocks: no worker is connected."""
        self._link_down = True
        for call_id in list(self._expiries):
            self._stop_clock(call_id)

    def link_up(self) -> None:
        """Start the clocks: a worker is connected and can ask for its calls."""
        self._link_down = False
        for call in self._unread.values():
            self._start_clock(call)

    def drop(self, call: Call) -> None:
        """Forget `call`, and abort it if it is under way."""
        if self._calls.get(call.id) is call:
            self._stop_clock(call.id)
            self._unread.pop(call.id, None)
            del self._calls[call.id]
            self._abort(call)

    def close(self) -> None:
        """Forget and abort every call."""
        for call in list(self._calls.values()):
            self.drop(call)

    def _share(self) -> None:
        for call in self._unread.values():
            call.limit = max(BUFFER, READ_AHEAD // len(self._unread))

    def _start_clock(self, call: Call) -> None:
        self._stop_clock(call.id)
        self._expiries[call.id] = asyncio.get_running_loop().call_later(self._hold, self.drop, call)

    def _stop_clock(self, call_id: str) -> None:
        handle = self._expiries.pop(call_id, None)
        if handle is not None:
            handle.cancel()

    def _evict(self) -> None:
        kept = [call for call in self._unread.values() if call.over]
        size = sum(call.held for call in kept)
        while kept and (len(kept) > MAX_HELD or size > MAX_HELD_BYTES):
            oldest = kept.pop(0)
            size -= oldest.held
            self.drop(oldest)
