"""The calls of one proxy by id: under way, or over and kept for a worker that comes back for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .call import BUFFER, Call

HOLD = 600.0
"""Seconds a call is kept that nobody reads although somebody could: time without a link does not count."""

READ_AHEAD = 64 * 1024 * 1024
"""Bytes that all calls nobody reads may hold together while they go on; at its share of it, a provider waits."""

MAX_HELD = 256
"""Most calls kept that are over; the oldest goes first."""

MAX_HELD_BYTES = 8 * 1024 * 1024
"""Most bytes kept of calls that are over; the oldest goes first."""


class Ledger:
    """An id stands for one call and one outcome until it is forgotten. `abort` ends a call that is still under way. While the
    link is down nothing is forgotten: what was paid for is there when the worker comes back, however late."""

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
        """The call of that id."""
        return self._calls.get(call_id)

    def taken(self, call: Call) -> None:
        """`call` has a reader again."""
        self._stop_clock(call.id)
        self._unread.pop(call.id, None)
        call.limit = BUFFER
        self._share()

    def add(self, call: Call) -> None:
        """A new call."""
        self._calls[call.id] = call

    def leave(self, call: Call) -> None:
        """Nobody reads `call` now; it is kept for HOLD seconds of link."""
        if self._calls.get(call.id) is not call:
            return
        self._unread[call.id] = call
        self._share()
        if not self._link_down:
            self._start_clock(call)
            self._evict()

    def link_down(self) -> None:
        """Nobody can ask for anything."""
        self._link_down = True
        for call_id in list(self._expiries):
            self._stop_clock(call_id)

    def link_up(self) -> None:
        """Whoever wants an unread call can ask for it from now on."""
        self._link_down = False
        for call in self._unread.values():
            self._start_clock(call)

    def _share(self) -> None:
        for call in self._unread.values():
            call.limit = max(BUFFER, READ_AHEAD // len(self._unread))

    def _start_clock(self, call: Call) -> None:
        self._stop_clock(call.id)
        self._expiries[call.id] = asyncio.get_running_loop().call_later(self._hold, self.drop, call)

    def drop(self, call: Call) -> None:
        """Forget `call`, and abort it when it is under way."""
        if self._calls.get(call.id) is call:
            self._stop_clock(call.id)
            self._unread.pop(call.id, None)
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
        kept = [call for call in self._unread.values() if call.over]
        size = sum(call.held for call in kept)
        while kept and (len(kept) > MAX_HELD or size > MAX_HELD_BYTES):
            oldest = kept.pop(0)
            size -= oldest.held
            self.drop(oldest)
