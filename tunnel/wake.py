"""Reasons to doubt a connection: this machine was asleep, this process was stopped, the network is another one."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable

Clock = Callable[[], float]
Addresses = Callable[[], tuple[str | None, ...]]

SLEPT_S = 2.0
"""Seconds of sleep from which on a connection is doubted."""

STOPPED_S = 5.0
"""Seconds by which our own timer must be late before we say that this process was stopped."""

_WALL_SLEPT_S = 10.0
_PROBES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def asleep_clock() -> tuple[Clock, float]:
    """A clock of the seconds this machine has slept so far, and by how much it must grow to mean something.

    Linux counts sleep in CLOCK_BOOTTIME and not in CLOCK_MONOTONIC (clock_gettime(2)); macOS counts it in CLOCK_MONOTONIC and
    not in CLOCK_UPTIME_RAW. Elsewhere the wall clock has to do, which may be set: only a large step counts.
    """
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    if boot is not None:
        return lambda: time.clock_gettime(boot) - time.clock_gettime(time.CLOCK_MONOTONIC), SLEPT_S
    uptime = getattr(time, "CLOCK_UPTIME_RAW", None)
    if uptime is not None:
        return lambda: time.clock_gettime(time.CLOCK_MONOTONIC) - time.clock_gettime(uptime), SLEPT_S
    return lambda: time.time() - time.monotonic(), _WALL_SLEPT_S


def source_addresses() -> tuple[str | None, ...]:
    """The address this machine would send from, for IPv4 and IPv6; None without a route. Nothing is sent."""
    found: list[str | None] = []
    for family, address in _PROBES:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))
                found.append(str(probe.getsockname()[0]))
        except OSError:
            found.append(None)
    return tuple(found)


async def changes(
    period: float = 1.0,
    *,
    asleep: tuple[Clock, float] | None = None,
    monotonic: Clock = time.monotonic,
    addresses: Addresses = source_addresses,
) -> AsyncIterator[str]:
    """One sentence for each reason to doubt the connections of this machine, as it happens."""
    slept, enough = asleep or asleep_clock()
    slept_before, looked = slept(), monotonic()
    known = addresses()
    while True:
        await asyncio.sleep(period)
        now, slept_now = monotonic(), slept()
        late, slept_for = now - looked - period, slept_now - slept_before
        looked, slept_before = now, slept_now
        if slept_for >= enough:
            yield f"this machine was asleep for {slept_for:.0f} s"
        elif late >= STOPPED_S:
            yield f"this process was stopped for {late:.0f} s"
        current = addresses()
        for place, address in enumerate(current):
            if address is not None and known[place] != address:
                yield "the network has changed"
                break
        known = current
