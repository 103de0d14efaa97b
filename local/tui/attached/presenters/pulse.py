"""The pulse of the interface: quick while somebody types, events come or something is about to change, else slow."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.message_pump import MessagePump

_QUICK_S = 0.1
_SLOW_S = 1.0
_AFTERWARDS_S = 1.5
"""Seconds for which the pulse stays quick after the last key or event."""


class Pulse:
    """Calls `beat` in an interval. `beat` returns whether the pulse has to be quick."""

    def __init__(self, pump: MessagePump, beat: Callable[[], bool]) -> None:
        self._beat = beat
        self._quick_until = 0.0
        self._quick = pump.set_interval(_QUICK_S, self._beat_quickly)
        self._is_quick = True
        pump.set_interval(_SLOW_S, self._beat_slowly)
        self.wake()

    def wake(self) -> None:
        """Something has happened: be quick for a while."""
        self._quick_until = time.monotonic() + _AFTERWARDS_S
        if not self._is_quick:
            self._is_quick = True
            self._quick.resume()

    def _beat_quickly(self) -> None:
        if not self._beat() and time.monotonic() > self._quick_until:
            self._is_quick = False
            self._quick.pause()

    def _beat_slowly(self) -> None:
        if not self._is_quick and self._beat():
            self.wake()
