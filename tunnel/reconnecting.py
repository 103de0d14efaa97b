"""Notice that this machine has slept or changed its network, and pace the attempts to reconnect."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType, SimpleNamespace

FIRST = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
EVERY = 30.0
JITTER = 0.2  # share by which a wait is longer or shorter, so that clients do not all try at the same moment


def waits(rand: Callable[[], float] = random.random) -> Iterator[float]:
    """Yield the seconds to wait before each attempt, without end: FIRST, then about EVERY. `rand()` is in [0, 1)."""
    for wait in itertools.chain(FIRST, itertools.repeat(EVERY)):
        yield wait * (1 + JITTER * (2 * rand() - 1))


STEADY_S = 1.0
MAX_QUICK = 5  # connections in a row that may break off within STEADY_S seconds before the waits grow


class Pace:
    """The waits of one session. They start over after a connection, unless connections keep breaking off at once."""

    def __init__(self, begin: Callable[[], Iterator[float]]) -> None:
        self._begin = begin
        self._waits = begin()
        self._since: float | None = None
        self._quick = 0

    def connected(self) -> None:
        self._since = time.monotonic()

    def next(self) -> float:
        if self._since is not None:
            self._quick = self._quick + 1 if time.monotonic() - self._since < STEADY_S else 0
            self._since = None
            if self._quick <= MAX_QUICK:
                self._waits = self._begin()
        return next(self._waits)


SLEPT_S = 2.0  # sleep of this many seconds is a reason to doubt a connection
STOPPED_S = 5.0  # if a timer is late by more than this many seconds, this process was stopped
_PROBES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def slept_s(source: ModuleType | SimpleNamespace = time) -> float:
    """Return the seconds that this machine has slept so far; 0 where that is not known.

    Linux counts sleep in CLOCK_BOOTTIME and not in CLOCK_MONOTONIC (clock_gettime(2)); macOS counts it in
    CLOCK_MONOTONIC and not in CLOCK_UPTIME_RAW.
    """
    for with_sleep, without in (("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"), ("CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW")):
        if hasattr(source, with_sleep) and hasattr(source, without):
            clocks = getattr(source, with_sleep), getattr(source, without)
            return float(source.clock_gettime(clocks[0]) - source.clock_gettime(clocks[1]))
    return 0.0


def source_addresses() -> tuple[str | None, ...]:
    """Return the address this machine would send from, for IPv4 and IPv6; None without a route. Nothing is sent."""
    found: list[str | None] = []
    for family, address in _PROBES:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))
                found.append(str(probe.getsockname()[0]))
        except OSError:
            found.append(None)
    return tuple(found)


async def changes(period: float = 1.0) -> AsyncIterator[str]:
    """Yield a sentence for each reason to doubt the connections of this machine. Check every `period` seconds."""
    slept_before = slept_s()
    known = source_addresses()
    while True:
        # Taken here, not after the sleep: the time that our reader takes for a sentence must not make the timer late.
        started = time.monotonic()
        await asyncio.sleep(period)
        late = time.monotonic() - started - period
        slept_now = slept_s()
        slept_for, slept_before = slept_now - slept_before, slept_now
        if slept_for >= SLEPT_S:
            yield f"this machine was asleep for {slept_for:.0f} s"
        elif late > STOPPED_S:
            yield f"this process was stopped for {late:.0f} s"
        current = source_addresses()
        for place, address in enumerate(current):
            if address is not None and known[place] != address:
                yield "the network has changed"
                break
        known = current
