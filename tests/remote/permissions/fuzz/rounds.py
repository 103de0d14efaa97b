"""Rounds of fuzzing: lines are judged, and those that are let through run; or all of them run in the cage."""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.remote.permissions.fuzz.ground import SHELLS, Ground, Trouble
from tests.remote.permissions.fuzz.lines import Lines
from tests.support.worker.permission_desk import bash

from ccb.remote.permissions.rules import Behavior
from ccb.remote.sandbox.cage_server import CageServer

_AT_ONCE = 100
_DENIED_AT_ONCE = 40  # lines that may change the ground
_OWN_WAYS = re.compile(r"\b(?:ln|python3|awk|make|run)\b")
"""Programs that read by their own code, or make other names for a file: rules about files do not hold for those."""


@dataclass(frozen=True)
class Round:
    """What a round did. `ran` counts the lines that ran, each once in every shell."""

    judged: int
    let_through: int
    ran: int
    trouble: Trouble | None = None


def judged_round(seed: int, count: int) -> Round:
    """Judge lines, and run each different one that is let through, without a cage."""
    with contextlib.closing(Ground()) as ground:
        engine = ground.desk.engine()
        logging.getLogger("ccb.remote.permissions.engine").setLevel(logging.CRITICAL)
        lines = list(itertools.islice(_lines(ground, seed), count))
        allowed = [line for line in lines if bash(engine, line).behavior is Behavior.ALLOW]
        ran, trouble = _run(ground, list(dict.fromkeys(allowed)))
    return Round(count, len(allowed), ran, trouble)


def caged_round(seed: int, most: int, cages: CageServer, corpus: bool = False, shells: Sequence[str] = SHELLS) -> Round:
    """Run lines in the cage that only reads, as if all of them were let through: those of the corpus first if `corpus`
    is set."""
    with contextlib.closing(Ground(cages, shells)) as ground:
        own = Lines(seed, str(ground.top / "other"), str(ground.desk.home)).corpus if corpus else []
        reach = [f"echo x > /dev/tcp/127.0.0.1/{ground.port}", "./run", "sh run", ". ./run", "cat ../other/c > made"]
        lines = list(dict.fromkeys([*own, *reach, *itertools.islice(_lines(ground, seed), most)]))
        ran, trouble = _run(ground, [line for line in lines if "\0" not in line])
    return Round(0, 0, ran, trouble)


def denied_round(seed: int, count: int) -> Round:
    """Judge lines where everything is allowed but to read what is outside, and run those that are let through: none
    may print it."""
    rules = "Read(../other/**) Read(~/.ssh/**) Read(~/x)"
    with contextlib.closing(Ground()) as ground:
        engine = ground.desk.engine("bypassPermissions", disallowed=rules)
        logging.getLogger("ccb.remote.permissions.engine").setLevel(logging.CRITICAL)
        judged = [line for line in itertools.islice(_lines(ground, seed), count) if not _OWN_WAYS.search(line)]
        allowed = [line for line in dict.fromkeys(judged) if bash(engine, line).behavior is Behavior.ALLOW]
        top = str(ground.top)
    for start in range(0, len(allowed), _DENIED_AT_ONCE):
        with contextlib.closing(Ground()) as ground:
            some = [line.replace(top, str(ground.top)) for line in allowed[start : start + _DENIED_AT_ONCE]]
            leaking = ground.leaking(some)
        if leaking:
            return Round(count, len(allowed), start, Trouble("read what is denied", (leaking,)))
    return Round(count, len(allowed), len(allowed))


def _lines(ground: Ground, seed: int) -> Iterator[str]:
    for line in Lines(seed, str(ground.top / "other"), str(ground.desk.home)):
        with contextlib.suppress(UnicodeEncodeError):
            line.encode()
            yield line


def _run(ground: Ground, lines: Sequence[str]) -> tuple[int, Trouble | None]:
    for start in range(0, len(lines), _AT_ONCE):
        trouble = ground.run(lines[start : start + _AT_ONCE])
        if trouble:
            return start, trouble
    return len(lines), None
