"""Figures against their peers: measured in turn in the same run, compared by medians, printed as rows."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence

RUNS = 9

Measure = Callable[[], Awaitable[float]]

HEADER = f"{'figure':<54} {'value':>12}  {'peer':<34} {'ratio':>6} {'limit':>10}"


class PeerMissing(Exception):
    """A peer is not installed here, so a figure cannot be compared. The text says how to get it."""


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


def compare(figure: str, ours: Sequence[float], peer: str, theirs: Sequence[float], limit: float | None) -> bool:
    """Print the median of seconds beside the peer's. The ratio of both has the limit. Return whether it holds."""
    return versus(figure, statistics.median(ours) * 1000, peer, statistics.median(theirs) * 1000, limit, unit="ms")


def bound(figure: str, ours: Sequence[float], limit_s: float) -> bool:
    """Print the median of seconds, whose limit is a time. Return whether it holds."""
    return single(figure, statistics.median(ours) * 1000, limit_s * 1000, unit="ms")


def versus(
    figure: str, ours: float, peer: str, theirs: float, limit: float | None, *, unit: str, least: bool = False
) -> bool:
    """Print a figure beside its peer's. The ratio is at most the limit, or at `least`. Return whether it holds."""
    ratio = ours / theirs
    beside = f"{peer} {_number(theirs)} {unit}"
    return _row(figure, f"{_number(ours)} {unit}", beside, ratio, limit, ratio, least=least)


def single(figure: str, value: float, limit: float | None = None, *, unit: str, least: bool = False) -> bool:
    """Print a figure that has a limit of its own, or none. Return whether it holds."""
    return _row(figure, f"{_number(value)} {unit}", "", None, limit, value, least=least)


def _row(
    figure: str, value: str, beside: str, ratio: float | None, limit: float | None, measured: float, *, least: bool
) -> bool:
    holds = limit is None or (measured >= limit if least else measured <= limit)
    shown = "" if limit is None else f"{'>=' if least else '<='} {limit:g}"
    word = "" if limit is None else "holds" if holds else "MISSED"
    of_peer = "" if ratio is None else f"{ratio:.2f}"
    print(f"{figure:<54} {value:>12}  {beside:<34} {of_peer:>6} {shown:>10}  {word}".rstrip(), flush=True)
    return holds


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
