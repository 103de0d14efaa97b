"""What a disturbed session must have in common with an undisturbed one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from tests.faults.play.compare import first_difference, transcript
from tests.faults.play.host import agent_of
from tests.faults.play.outcome import Outcome
from tests.faults.play.plan import Plan
from tests.faults.work.work import WORKS

from ccb.remote.daemon.assembly import INTERRUPTED

TAKEN_OVER = 75

MADE = "~/.cache/ccb/.made"  # says which directories a first session made, so that `ccb clean` can take them back


def check(plan: Plan, outcome: Outcome, undisturbed: Outcome) -> str:
    wrong = list(_wrong(plan, outcome, undisturbed))
    return "\n".join([*wrong, str(plan), f"stderr: {outcome.stderr[-2000:]}"]) if wrong else ""


def _wrong(plan: Plan, outcome: Outcome, undisturbed: Outcome) -> Iterator[str]:
    for happened in (outcome.counts, outcome.near, outcome.hooked):
        twice = [line for line, times in Counter(happened).items() if times > 1]
        if twice:
            yield f"{twice} happened twice"
    if outcome.twice:
        yield f"twice in the journal: {outcome.twice}"
    if outcome.untaken:
        yield f"no turn has taken {outcome.untaken}"
    if outcome.left:
        yield f"left on the host or the laptop: {outcome.left}"
    yield from _untrue(outcome)
    yield from _wrong_trees(plan, outcome)
    more = outcome.kept - undisturbed.kept - ({MADE} if plan.cold else set())
    if more:
        yield f"files more than after an undisturbed session: {sorted(more)}"
    if plan.ending == "kill daemon":  # what ran when it died is not run again
        if outcome.code not in (0, 1):  # 1: the turn it died in was the last one
            yield f"exit code {outcome.code}"
        if not set(outcome.counts) <= set(undisturbed.counts) or not set(outcome.near) <= set(undisturbed.near):
            yield f"counted {outcome.counts}, on the laptop {outcome.near}"
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
    again = plan.ending in ("kill ccb", "take over")
    if outcome.near != undisturbed.near and not (again and set(outcome.near) < set(undisturbed.near)):
        yield f"counted {outcome.near} on the laptop"
    if outcome.files != undisturbed.files:
        yield f"files {outcome.files}"
    gone = plan.ending == "kill ccb" or (
        again and bool(plan.steps)
    )  # who cannot be reached takes along what it was reading
    most = undisturbed.requests + (WORKS[plan.work].at_once if gone else 0)
    if not undisturbed.requests <= outcome.requests <= most:
        yield f"{outcome.requests} requests, {undisturbed.requests} without a fault"
    if not again:
        difference = first_difference(
            transcript(undisturbed.messages, undisturbed.home), transcript(outcome.messages, outcome.home)
        )
        if difference:
            yield difference


def _untrue(outcome: Outcome) -> Iterator[str]:
    """What the model was told of its calls of MCP servers, and is not so; of one without an answer: that nobody
    knows."""
    counted = {*outcome.counts, *outcome.near}
    for given, result in outcome.told:
        word = given.get("word")
        if word is None or any(each in result for each in _UNKNOWN):
            continue
        answered = f"counted {word}" in result
        if not {word, f"{word}-ended"} <= counted if answered else word in counted:
            yield f"the model was told {result!r} of {word!r}, and counted was {sorted(counted)}"


_UNKNOWN = ("Whether it had any effect is not known", INTERRUPTED)


def _wrong_trees(plan: Plan, outcome: Outcome) -> Iterator[str]:
    """Worktrees that are lost, were left without a word, or hold something else than their agents have left there."""
    told = json.dumps([result for _, result in outcome.told])
    unknown = [path for path in outcome.trees if path not in told]
    if unknown:
        yield f"the model does not know of the worktrees {unknown}"
    left = {agent_of(path): text for path, text in outcome.trees.items()}
    wanted = dict.fromkeys(WORKS[plan.work].kept, "left\n")
    cut = plan.ending == "kill daemon"  # an agent that was cut may go on in its worktree
    if not all(text in ("", "left\n") for text in left.values()) if cut else left != wanted:
        yield f"worktrees {left}"


def _ordered(plan: Plan, lines: list[str]) -> list[str]:
    return sorted(lines) if WORKS[plan.work].parallel else lines
