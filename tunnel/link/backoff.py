"""How long to wait between attempts to reconnect."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

FIRST = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
EVERY = 30.0
JITTER = 0.2
"""Share by which a wait is longer or shorter, so that many clients of one host do not come at the same moment."""


def waits(rand: Callable[[], float] = random.random) -> Iterator[float]:
    """Seconds before each attempt, for ever: at once, then longer and longer, at last about every EVERY. `rand` is in [0, 1)."""
    number = 0
    while True:
        wait = FIRST[number] if number < len(FIRST) else EVERY
        number += 1
        yield wait * (1 + JITTER * (2 * rand() - 1))


STEADY_S = 1.0
MOST_QUICK = 5
"""Connections in a row that may break off within STEADY_S before the waits grow over them too."""


class Pace:
    """The waits of one session. They begin anew after a connection, unless connections keep breaking off at once: a worker that
    dies of its client must not be started several times a second."""

    def __init__(self, begin: Callable[[], Iterator[float]]) -> None:
        self._begin = begin
        self._waits = begin()
        self._since: float | None = None
        self._quick = 0

    def connected(self) -> None:
        """There is a connection."""
        self._since = time.monotonic()

    def next(self) -> float:
        """Seconds before the next attempt, after a connection was lost or could not be made."""
        if self._since is not None:
            self._quick = self._quick + 1 if time.monotonic() - self._since < STEADY_S else 0
            self._since = None
            if self._quick <= MOST_QUICK:
                self._waits = self._begin()
        return next(self._waits)
