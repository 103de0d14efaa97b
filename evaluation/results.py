"""The results of attempts: their file (JSONL), their table, and the comparison of two files."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import fmean, median


@dataclass(frozen=True)
class Outcome:
    """One attempt at a task. `ending` is how the agent's turn ended ("success", "timeout", …). `score` is the reward
    of the hidden tests; None if the attempt says nothing about the agent: a provider failed, or the budget ended."""

    task: str
    attempt: int
    model: str
    options: str
    host: str
    ending: str
    score: float | None
    cost_usd: float = 0.0
    seconds: float = 0.0
    turns: int = 0
    session_id: str = ""
    said: str = ""


class ResultsFile:
    """The outcomes of one model with one set of options. Raises ValueError if the file has others."""

    def __init__(self, path: Path, model: str, options: str) -> None:
        self._path = path
        path.touch()  # what cannot be written is found out before it is paid for
        self.rows = read_results(path)
        for row in self.rows:
            if (row.model, row.options) != (model, options):
                raise ValueError(f"{path} has results of {row.model} {row.options}: choose another file with --out")

    @property
    def done(self) -> set[tuple[str, int]]:
        return {(row.task, row.attempt) for row in self.rows if row.score is not None}

    @property
    def spent_usd(self) -> float:
        return sum(row.cost_usd for row in self.rows)

    def add(self, outcome: Outcome) -> None:
        self.rows.append(outcome)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(outcome)) + "\n")


def read_results(path: Path) -> list[Outcome]:
    """Raises ValueError if a line is no result."""
    try:
        return [Outcome(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is no file of results: {error}") from None


def _by_task(rows: Iterable[Outcome]) -> Mapping[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = defaultdict(list)
    for row in rows:
        if row.score is not None:
            found[row.task].append(row)
    return dict(sorted(found.items()))


def _columns(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    pad = [str.ljust, *[str.rjust] * (len(widths) - 1)]
    aligned = [[to(cell, width) for to, cell, width in zip(pad, line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def table(rows: Sequence[Outcome]) -> str:
    """A line for each task, with the means of its attempts, and their totals."""
    lines: list[Sequence[str]] = [("task", "score", "of", "cost $", "time s", "turns", "ended")]
    tasks = _by_task(rows)
    for task, attempts in tasks.items():
        endings = ", ".join(sorted({row.ending for row in attempts} - {"success"}))
        lines.append((task, *_figures(attempts), endings))
    counted = [row for attempts in tasks.values() for row in attempts]
    if counted:
        lines.append(("all tasks (means)", *_figures(counted), ""))
    return f"{_columns(lines)}\nspent ${sum(row.cost_usd for row in rows):.2f}"


def _figures(rows: Sequence[Outcome]) -> tuple[str, ...]:
    scores = [row.score for row in rows if row.score is not None]
    return (
        f"{fmean(scores):.2f}",
        str(len(rows)),
        f"{fmean(row.cost_usd for row in rows):.3f}",
        f"{fmean(row.seconds for row in rows):.0f}",
        f"{fmean(row.turns for row in rows):.1f}",
    )


def sign_test(more: int, less: int) -> float:
    """The chance of a split at least this uneven if more and less were equally likely (two-sided, exact). With one
    attempt a task and scores of 0 and 1, it is McNemar's exact test."""
    tried = more + less
    tail = sum(comb(tried, count) for count in range(min(more, less) + 1))
    return min(1.0, tail / 2.0 ** (tried - 1))


_COMPARED: Mapping[str, Callable[[Outcome], float]] = {
    "score": lambda row: row.score or 0.0,
    "cost $": lambda row: row.cost_usd,
    "time s": lambda row: row.seconds,
    "turns": lambda row: row.turns,
}


def comparison(first: Sequence[Outcome], second: Sequence[Outcome]) -> str:
    """What changes from `first` (A) to `second` (B): pairs of the means of each task that both have."""
    left, right = _by_task(first), _by_task(second)
    tasks = sorted(left.keys() & right.keys())
    if not tasks:
        return "no task has a score in both files"
    pairs = {
        name: [(fmean(map(figure, left[task])), fmean(map(figure, right[task]))) for task in tasks]
        for name, figure in _COMPARED.items()
    }
    each: list[Sequence[str]] = [("task", *(f"{name} {side}" for name in pairs for side in ("A", "B - A")))]
    for index, task in enumerate(tasks):
        cells = [f"{value:.3g}" for values in pairs.values() for a, b in [values[index]] for value in (a, b - a)]
        each.append((task, *cells))
    sums: list[Sequence[str]] = [
        ("", "mean A", "mean B", "median A", "median B", "median of B - A", "B more", "B less", "p")
    ]
    for name, values in pairs.items():
        more, less = sum(b > a for a, b in values), sum(b < a for a, b in values)
        sides = list(zip(*values, strict=True))
        middles = [*map(fmean, sides), *map(median, sides), median(b - a for a, b in values)]
        sums.append(
            (name, *(f"{value:.3f}" for value in middles), str(more), str(less), f"{sign_test(more, less):.3f}")
        )
    said = "\n".join([f"{len(tasks)} tasks have scores in both files", f"A: {_name(first)}", f"B: {_name(second)}"])
    return "\n\n".join([_columns(each), said, _columns(sums)])


def _name(rows: Sequence[Outcome]) -> str:
    return f"{rows[0].model} {rows[0].options}".rstrip()
