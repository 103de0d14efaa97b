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


def _without_an_answer(messages: list[Json]) -> None:
    messages.remove(next(m for m in messages if m["type"] == "assistant"))


def _twice(messages: list[Json]) -> None:
    place = next(place for place, m in enumerate(messages) if m["type"] == "assistant")
    messages.insert(place, messages[place])


def _other_text(messages: list[Json]) -> None:
    results = [m for m in messages if m["type"] == "result"]
    results[-1]["result"] += "."


def _asked_twice(messages: list[Json]) -> None:
    messages.append(next(m for m in messages if m["type"] == "control_request"))


@pytest.mark.parametrize("spoil", [_without_an_answer, _twice, _other_text, _asked_twice])
def test_a_message_that_is_lost_repeated_or_changed_is_found(
    spoil: Callable[[list[Json]], None], undisturbed: Outcome
) -> None:
    spoiled = copy.deepcopy(undisturbed)
    spoil(spoiled.messages)
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
