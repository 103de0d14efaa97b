"""How long to wait between attempts to reconnect."""

from __future__ import annotations

import random
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
