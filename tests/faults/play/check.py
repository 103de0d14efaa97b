"""What a disturbed session must have in common with an undisturbed one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.faults.play.compare import first_difference, transcript
from tests.faults.play.outcome import Outcome
from tests.faults.play.plan import Plan
from tests.faults.work.work import WORKS

TAKEN_OVER = 75

MADE = "~/.cache/ccb/.made"
"""Says which directories a first session made, so that `ccb clean` can take them back."""


def check(plan: Plan, outcome: Outcome, undisturbed: Outcome) -> str:
    """What is wrong with a session; "" when it came out as it must."""
    wrong = list(_wrong(plan, outcome, undisturbed))
    return "\n".join([*wrong, str(plan), f"stderr: {outcome.stderr[-2000:]}"]) if wrong else ""


def _wrong(plan: Plan, outcome: Outcome, undisturbed: Outcome) -> Iterator[str]:
    for happened in (outcome.counts, outcome.hooked):
        twice = [line for line, times in Counter(happened).items() if times > 1]
        if twice:
            yield f"{twice} happened twice"
    if outcome.twice:
        yield f"twice in the journal: {outcome.twice}"
    if outcome.untaken:
        yield f"no turn has taken {outcome.untaken}"
    if outcome.left:
        yield f"left on the host: {outcome.left}"
    more = outcome.kept - undisturbed.kept - ({MADE} if plan.cold else set())
    if more:
        yield f"files more than after an undisturbed session: {sorted(more)}"
    if plan.ending == "kill daemon":  # what ran when it died is not run again
        if outcome.code not in (0, 1):  # 1: the turn it died in was the last one
            yield f"exit code {outcome.code}"
        if not set(outcome.counts) <= set(undisturbed.counts):
            yield f"counted {outcome.counts}"
        if outcome.requests > undisturbed.requests + WORKS[plan.work].asked_again:
            yield f"{outcome.requests} requests, {undisturbed.requests} without a fault"
        return
    if outcome.code != 0:
        yield f"exit code {outcome.code}"
    if outcome.first_code not in (0, TAKEN_OVER, -9):
        yield f"exit code {outcome.first_code} of the client that was taken over"
    if _ordered(plan, outcome.counts) != _ordered(plan, undisturbed.counts):
        yield f"counted {outcome.counts}"
    if _ordered(plan, outcome.hooked) != _ordered(plan, undisturbed.hooked):
        yield f"hooks ran for {outcome.hooked}"
    if outcome.files != undisturbed.files:
        yield f"files {outcome.files}"
    again = plan.ending in ("kill ccb", "take over")
    gone = plan.ending == "kill ccb" or (
        again and bool(plan.steps)
    )  # who cannot be reached takes along what it was reading
    most = undisturbed.requests + gone
    if not undisturbed.requests <= outcome.requests <= most:
        yield f"{outcome.requests} requests, {undisturbed.requests} without a fault"
    if not again:
        difference = first_difference(
            transcript(undisturbed.messages, undisturbed.home), transcript(outcome.messages, outcome.home)
        )
        if difference:
            yield difference


def _ordered(plan: Plan, lines: list[str]) -> list[str]:
    return sorted(lines) if WORKS[plan.work].parallel else lines
