"""Figures against their peers: measured in turn in the same run, compared by medians, and printed as ratios."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence

RUNS = 9

Measure = Callable[[], Awaitable[float]]


async def in_turn(*measures: Measure, runs: int = RUNS) -> list[list[float]]:
    """Return the seconds of each measure, `runs` times each, one after the other in every round.

    One round before them is not counted: it fills the caches of the machine.
    """
    taken: list[list[float]] = [[] for _ in measures]
    for number in range(runs + 1):
        for measure, values in zip(measures, taken, strict=True):
            took = await measure()
            if number:
                values.append(took)
    return taken


def compare(what: str, ours: Sequence[float], peer: str, theirs: Sequence[float], limit: float) -> None:
    """Print a figure in seconds as a ratio to its peer's, and whether the limit holds."""
    median, base = statistics.median(ours), statistics.median(theirs)
    ratio = median / base
    print(
        f"{what:<44} {median * 1000:6.0f} ms   {peer} {base * 1000:.0f} ms   "
        f"{ratio:.2f} times (limit {limit:g}: {_word(ratio <= limit)})",
        flush=True,
    )


def bound(what: str, ours: Sequence[float], limit_s: float) -> None:
    """Print a figure in seconds whose limit is a time, and whether it holds."""
    median = statistics.median(ours)
    print(
        f"{what:<44} {median * 1000:6.0f} ms   "
        f"{median / limit_s:.2f} times the limit of {limit_s * 1000:.0f} ms ({_word(median <= limit_s)})",
        flush=True,
    )


def _word(holds: bool) -> str:
    return "holds" if holds else "missed"
