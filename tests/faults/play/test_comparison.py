"""The faults and the comparison themselves: plans repeat, and what differs is found."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from tests.faults.play.check import check
from tests.faults.play.compare import first_difference, transcript
from tests.faults.play.outcome import Outcome
from tests.faults.play.plan import ENDINGS, LINK_FAULTS, Plan, plan
from tests.support.model.model_script import Json


def test_a_plan_is_its_seed_alone_and_all_faults_are_among_the_plans() -> None:
    plans = [plan(seed) for seed in range(300)]
    assert plans == [plan(seed) for seed in range(300)]
    assert {step.kind for each in plans for step in each.steps} == set(LINK_FAULTS)
    assert {each.ending for each in plans} == {"", *ENDINGS}
    assert len({str(each) for each in plans}) == 300


def test_ids_times_and_progress_do_not_differ(undisturbed: Outcome) -> None:
    other = copy.deepcopy(undisturbed.messages)
    for message in other:
        message["uuid"] = "another"
        message["session_id"] = "another"
    other.insert(3, {"type": "stream_event", "event": {}})
    assert not first_difference(transcript(undisturbed.messages, undisturbed.home), transcript(other, undisturbed.home))


def _first(kind: str, messages: list[Json]) -> int:
    return next(place for place, message in enumerate(messages) if message["type"] == kind)


SPOILED: dict[str, Callable[[list[Json]], object]] = {
    "an answer is lost": lambda messages: messages.pop(_first("assistant", messages)),
    "an answer comes twice": lambda messages: messages.insert(0, messages[_first("assistant", messages)]),
    "another result": lambda messages: messages[_first("result", messages)].update(result="Another."),
    "a question comes twice": lambda messages: messages.append(messages[_first("control_request", messages)]),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_message_that_is_lost_repeated_or_changed_is_found(how: str, undisturbed: Outcome) -> None:
    spoiled = copy.deepcopy(undisturbed)
    SPOILED[how](spoiled.messages)
    assert check(Plan(1), spoiled, undisturbed)


@pytest.mark.parametrize(
    "change",
    [
        {"counts": ["one", "one"]}, {"requests": 8}, {"left": ["1 ccb"]}, {"kept": {"~/.cache/ccb/temp"}}, {"code": 75},
        {"files": {}},
    ],
)  # fmt: skip
def test_a_side_effect_a_payment_or_a_rest_too_many_is_found(change: Json, undisturbed: Outcome) -> None:
    assert not check(Plan(1), undisturbed, undisturbed)
    spoiled = copy.deepcopy(undisturbed)
    for name, value in change.items():
        setattr(spoiled, name, value)
    assert check(Plan(1), spoiled, undisturbed)
