"""How long to wait between attempts to reconnect."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

FIRST = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
EVERY = 30.0
JITTER = 0.2
"""Share by which a wait is longer or shorter, so that the clients of one host do not all try at the same moment."""


def waits(rand: Callable[[], float] = random.random) -> Iterator[float]:
    """Yield the seconds to wait before each attempt, without end: none, then FIRST, then about EVERY.

    `rand()` is in [0, 1).
    """
    number = 0
    while True:
        wait = FIRST[number] if number < len(FIRST) else EVERY
        number += 1
        yield wait * (1 + JITTER * (2 * rand() - 1))


STEADY_S = 1.0
MAX_QUICK = 5
"""Connections in a row that may break off within STEADY_S seconds before the waits grow."""


class Pace:
    """The waits of one session. They start over after a connection, unless connections keep breaking off at once.

    A worker that crashes whenever its client attaches must not be started several times a second.
    """

    def __init__(self, begin: Callable[[], Iterator[float]]) -> None:
        self._begin = begin
        self._waits = begin()
        self._since: float | None = None
        self._quick = 0

    def connected(self) -> None:
        """Note that a connection was made."""
        self._since = time.monotonic()

    def next(self) -> float:
        """Return the seconds to wait after a connection was lost or could not be made."""
        if self._since is not None:
            self._quick = self._quick + 1 if time.monotonic() - self._since < STEADY_S else 0
            self._since = None
            if self._quick <= MAX_QUICK:
                self._waits = self._begin()
        return next(self._waits)
