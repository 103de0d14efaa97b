"""How long an event loop is busy at a time, in wall time and in the CPU time of its thread.

What blocks a key is one turn of the loop: everything that is ready runs before the next look at the terminal. On a
machine that does other work, wall time contains that work; CPU time does not.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

WINDOW_S = 0.1


@dataclass
class LoopTurns:
    """The turns of a loop: when each one ended, and its seconds of wall and of CPU time."""

    ends: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def longest(self, seconds: Sequence[float]) -> list[float]:
        """Return the longest turn of each tenth of a second. Most turns are short: a median of all says nothing."""
        longest: dict[int, float] = {}
        for end, each in zip(self.ends, seconds, strict=True):
            window = int(end / WINDOW_S)
            longest[window] = max(longest.get(window, 0.0), each)
        return list(longest.values())

    def figures(self) -> dict[str, float]:
        """Return median, 99th percentile and maximum of the longest turns, in milliseconds."""
        found = {}
        for name, seconds in (("wall", self.wall), ("cpu", self.cpu)):
            longest = sorted(self.longest(seconds))
            found[f"{name}_median_ms"] = statistics.median(longest) * 1000
            found[f"{name}_p99_ms"] = longest[int(len(longest) * 0.99)] * 1000
            found[f"{name}_max_ms"] = longest[-1] * 1000
        return found


@contextmanager
def watched_turns() -> Iterator[LoopTurns]:
    """Note the turns of the running loop. A turn begins when its selector returns, and ends when it is asked again."""
    turns, loop = LoopTurns(), asyncio.get_running_loop()
    selector = loop._selector  # type: ignore[attr-defined]
    select, began = selector.select, [time.monotonic(), time.thread_time()]

    def noting_select(timeout: float | None = None) -> object:
        now, cpu = time.monotonic(), time.thread_time()
        turns.ends.append(now)
        turns.wall.append(now - began[0])
        turns.cpu.append(cpu - began[1])
        events = select(timeout)
        began[:] = time.monotonic(), time.thread_time()
        return events

    selector.select = noting_select
    try:
        yield turns
    finally:
        del selector.select
