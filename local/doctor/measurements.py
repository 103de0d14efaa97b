"""The doctor's measurements on the channel of a worker: round trip, throughput and clock."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable

from ccb.tunnel.wire import Credit, Data, Ping

from ..connect.session_list import ReportRow, row_of
from .findings import HOST, Finding, State, skew_text
from .worker_channel import WorkerChannel

_PINGS = 7
_SIZES = tuple(size * 1024 for size in (4, 32, 128, 512, 2048))
_QUICK_S = 0.3
_SHORTEST_S = 0.001
_CHUNK = 32 * 1024
_SLOW_ROUND_TRIP_S = 0.5
_SLOW_BYTES_S = 64 * 1024
_SKEW_S = 60.0


class ClockRow(ReportRow):
    """The answer to a ping: the host's clock."""

    n: int
    now: float


async def measured_findings(channel: WorkerChannel) -> list[Finding]:
    """Measure round trip, throughput and the host's clock. Raises CcbError."""
    trips: list[float] = []
    skew = 0.0
    for number in range(_PINGS):
        before, began = time.time(), time.monotonic()
        await channel.send(Ping(0, number))
        clock = row_of(ClockRow, (await channel.report("clock")).body, "the host")
        trip = time.monotonic() - began
        if not trips or trip < min(trips):
            skew = clock.now - (before + trip / 2)
        trips.append(trip)
    best = min(trips)
    down = await _throughput(lambda size: _down(channel, size), best)
    await _up(channel, 0)  # wait for data that is still on its way: it must not count towards the next transfers
    up = await _throughput(lambda size: _up(channel, size), best)
    return [_round_trip(sorted(trips)), _speed(down, up), _clock(skew)]


_Transfer = Callable[[int], Awaitable[float]]


async def _throughput(transfer: _Transfer, round_trip: float) -> float:
    """Return the bytes per second, not counting the round trip that every transfer takes.

    Transfers grow until one takes long enough to measure, so that a slow link is not busy for long.
    """
    rate = 0.0
    for size in _SIZES:
        took = await transfer(size) - round_trip
        rate = size / max(took, _SHORTEST_S)
        if took > _QUICK_S:
            break
    return rate


async def _down(channel: WorkerChannel, size: int) -> float:
    began = time.monotonic()
    await channel.send(Credit(0, 0, size), Ping(0, 0))
    while (await channel.report("bulk", "clock")).kind == "bulk":
        pass
    return time.monotonic() - began


async def _up(channel: WorkerChannel, size: int) -> float:
    began = time.monotonic()
    for offset in range(0, size, _CHUNK):
        await channel.send(Data(0, 0, offset, secrets.token_hex(min(_CHUNK, size - offset) // 2)))
    await channel.send(Ping(0, 0))
    await channel.report("clock")
    return time.monotonic() - began


def _round_trip(trips: list[float]) -> Finding:
    middle = trips[len(trips) // 2]
    text = f"{middle * 1000:.1f} ms (best {trips[0] * 1000:.1f}, worst {trips[-1] * 1000:.1f}, of {len(trips)})"
    if middle > _SLOW_ROUND_TRIP_S:
        fix = "Everything works, but slowly: look for a nearer jump host or a better network."
        return Finding(HOST, "round trip", State.WARN, text, fix)
    return Finding(HOST, "round trip", State.OK, text)


def _speed(down: float, up: float) -> Finding:
    text = f"{_rate(down)} from the host, {_rate(up)} to it"
    if min(down, up) < _SLOW_BYTES_S:
        fix = "Everything works, but slowly: `Compression yes` in ssh_config may help, or a better network."
        return Finding(HOST, "throughput", State.WARN, text, fix)
    return Finding(HOST, "throughput", State.OK, text)


def _rate(bytes_a_second: float) -> str:
    if bytes_a_second >= 1e6:
        return f"{bytes_a_second / 1e6:.1f} MB/s"
    return f"{bytes_a_second / 1e3:.0f} KB/s"


def _clock(skew: float) -> Finding:
    text = skew_text(skew, 0.1, "this machine")
    if abs(skew) > _SKEW_S:
        fix = "Set the host's clock (chrony, ntp): ccb works without it, but certificates and make need it."
        return Finding(HOST, "clock", State.WARN, text, fix)
    return Finding(HOST, "clock", State.OK, text)
