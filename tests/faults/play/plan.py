"""What goes wrong in one session, made from its seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.faults.work.work import WORKS

LINK_FAULTS = ("reset", "close", "repeat", "double", "freeze", "slow", "kill bridge", "kill sshd")
COPIES = ("damaged", "of another version", "a link", "unreadable", "a directory")
"""What may be in the place of the worker's compiled copy on the host."""

ENDINGS = ("kill ccb", "kill daemon", "take over", "stop ccb", "clocks jump", "cut link")

DEAD_S = 18.0  # longer than either side believes in a silent connection

_UP = 60_000  # bytes of a whole session in that direction, the bundle not counted
_DOWN = 80_000
_BUNDLE = 170_000
_KEYED = (
    5_000  # before keys are exchanged nothing tells repeated bytes from others: a login then waits for its time-out
)
_EARLY = 12_000  # handshake, deploy, hello, attach and replay are over after so many


@dataclass(frozen=True)
class Step:
    """A fault at byte `at` of a direction, of all connections or the one with that number, for some `seconds`."""

    kind: str
    at: int
    upward: bool
    seconds: float = 0.0
    connection: int = 0

    def __str__(self) -> str:
        where = f"{'up' if self.upward else 'down'} {self.at}" + (
            f" of connection {self.connection}" if self.connection else ""
        )
        return f"{self.kind} at {where}" + (f" for {self.seconds:g} s" if self.seconds else "")


@dataclass(frozen=True)
class Plan:
    """`cold`: the host has no bundle. `copy`: what is in the place of its compiled copy (`COPIES`). `ending` happens to
    the processes once, in turn `ending_turn` or at a `moment` of the work. The prompt of turn `offline` is sent while
    the link is down."""

    seed: int
    steps: tuple[Step, ...] = ()
    delay_s: float = 0.0
    cold: bool = False
    copy: str = ""
    ending: str = ""
    ending_turn: int = 0
    moment: str = ""
    stopped_s: float = 0.0
    offline: int = 0
    work: str = "basics"

    def __str__(self) -> str:
        more = [f"delay {self.delay_s:g} s"] if self.delay_s else []
        more += ["cold host"] if self.cold else []
        more += [f"the compiled copy is {self.copy}"] if self.copy else []
        more += [f"prompt {self.offline} sent offline"] if self.offline else []
        when = f"at {self.moment}" if self.moment else f"in turn {self.ending_turn}"
        more += [f"{self.ending} {when}"] if self.ending else []
        more += [f"for {self.stopped_s:g} s"] if self.stopped_s else []
        steps = ", ".join(map(str, self.steps)) or "nothing"
        return f"seed {self.seed}, {self.work}: {steps}" + (f" ({', '.join(more)})" if more else "")


def plan(seed: int, *, long: bool = False) -> Plan:
    """The plan of a seed. `long` freezes and stops for longer than a connection is believed in."""
    rand = random.Random(seed)
    cold = rand.random() < 0.25
    dead = DEAD_S if long else 2.0
    steps = []
    for _ in range(rand.choice((1, 1, 2, 2, 3, 4))):
        upward = rand.random() < 0.5
        span = (_UP if upward else _DOWN) + (_BUNDLE if cold and upward else 0)
        kind = rand.choice(LINK_FAULTS)
        where = rand.random()
        number = rand.choice((2, 2, 3)) if where < 0.2 else 0
        at = rand.randrange(1, _EARLY if where < 0.4 else span)
        if kind == "repeat":
            at = max(at, _KEYED)
        seconds = rand.choice((0.3, 1.0, dead)) if kind in ("freeze", "slow") else 0.0
        steps.append(Step(kind, at, upward, seconds, number))
    work = rand.choice((*("basics",) * 4, *WORKS))
    moments = WORKS[work].moments
    steps = [_stretched(step, WORKS[work].requests / WORKS["basics"].requests) for step in steps]
    ending = rand.choice(ENDINGS) if rand.random() < (0.3 if work == "basics" else 0.6) else ""
    made = Plan(
        seed,
        tuple(sorted(steps, key=lambda step: (step.connection, step.at))),
        delay_s=rand.choice((0.0, 0.0, 0.0, 0.005, 0.02)),
        cold=cold,
        ending=ending,
        ending_turn=rand.randrange(1, 4),
        moment=rand.choice(moments) if ending and rand.random() < (0.2 if work == "basics" else 0.7) else "",
        stopped_s=dead + 2.0 if ending == "stop ccb" else 0.0,
        offline=rand.choice((2, 3)) if rand.random() < 0.15 else 0,
        work=work,
    )
    return made if cold else replace(made, copy=rand.choice(("", *COPIES)))


def _stretched(step: Step, factor: float) -> Step:
    """A fault in the course of a session comes as late in a longer one."""
    return step if step.connection or step.at < _EARLY else replace(step, at=round(step.at * factor))
