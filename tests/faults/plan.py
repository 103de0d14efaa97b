"""What goes wrong in one session, made from its seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

LINK_FAULTS = ("reset", "close", "repeat", "freeze", "kill bridge", "kill sshd")
ENDINGS = ("kill ccb", "kill daemon")

_UP = 60_000  # bytes of a whole session in that direction, the bundle not counted
_DOWN = 80_000
_BUNDLE = 190_000


@dataclass(frozen=True)
class Step:
    """A fault at byte `at` of a direction; `seconds` how long a freeze lasts."""

    kind: str
    at: int
    upward: bool
    seconds: float = 0.0


@dataclass(frozen=True)
class Plan:
    """`cold`: the host has no bundle yet. `ending` is a process that is killed once, in turn `ending_turn`; "" for none."""

    seed: int
    steps: tuple[Step, ...]
    delay_s: float
    cold: bool
    ending: str
    ending_turn: int

    def __str__(self) -> str:
        steps = ", ".join(
            f"{step.kind} at {'up' if step.upward else 'down'} {step.at}"
            + (f" for {step.seconds:g} s" if step.seconds else "")
            for step in self.steps
        )
        more = [f"delay {self.delay_s:g} s"] if self.delay_s else []
        more += ["cold host"] if self.cold else []
        more += [f"{self.ending} in turn {self.ending_turn}"] if self.ending else []
        return f"seed {self.seed}: {steps or 'nothing'}" + (f" ({', '.join(more)})" if more else "")


def plan(seed: int, *, long: bool = False) -> Plan:
    """The plan of a seed. `long` freezes for longer than a connection is given up."""
    rand = random.Random(seed)
    cold = rand.random() < 0.25
    steps = []
    for _ in range(rand.choice((1, 1, 2, 2, 3, 4))):
        upward = rand.random() < 0.5
        span = (_UP if upward else _DOWN) + (_BUNDLE if cold and upward else 0)
        kind = rand.choice(LINK_FAULTS)
        early = rand.random() < 0.3  # handshake, deploy, hello, attach
        at = rand.randrange(1, 12_000 if early else span)
        steps.append(
            Step(kind, at, upward, rand.choice((0.3, 1.0, 18.0 if long else 2.0)) if kind == "freeze" else 0.0)
        )
    ending = rand.choice(ENDINGS) if rand.random() < 0.2 else ""
    delay = rand.choice((0.0, 0.0, 0.0, 0.005, 0.02))
    return Plan(seed, tuple(sorted(steps, key=lambda step: step.at)), delay, cold, ending, rand.randrange(1, 4))
