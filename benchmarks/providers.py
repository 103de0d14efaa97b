"""What translating costs: microseconds for each event of each dialect. `proxy_budget` measures memory."""

from __future__ import annotations

import time

from benchmarks.ratio import single
from tests.support.providers.adapters import MODELS
from tests.support.providers.dialect_server import stream_of
from tests.support.providers.readers import reader_of, translated
from tests.support.providers.turns import Said

LIMIT_US = 50
SAID = Said("some words of an answer " * 800, "thinking " * 300, (("Read", {"path": "x" * 2000}), ("Bash", {})))


def event_cost(flavour: str) -> tuple[int, float]:
    """The events of a stream, and the microseconds for each: the least of several runs."""
    stream = stream_of(SAID, 1, flavour)
    events = stream.count(b"data: ")
    parts = [stream[start : start + 1400] for start in range(0, len(stream), 1400)]
    least = 1.0
    for _ in range(7):
        reader = reader_of(flavour)
        started = time.perf_counter()
        translated(flavour, parts, reader)
        least = min(least, (time.perf_counter() - started) / events)
    return events, least * 1e6


async def main() -> None:
    for flavour in MODELS:
        events, microseconds = event_cost(flavour)
        single(f"{flavour}: an event of {events}", microseconds, LIMIT_US, unit="µs")
