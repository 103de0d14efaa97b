"""How much a model thinks: what a request to a model of another provider asks for, by what the laptop knows of it."""

from __future__ import annotations

import pytest

from ccb.remote.model.model_request import SMALL, can_think, reasoning_fields, resolve_model, small_model
from ccb.tunnel.wire.model_facts import ModelNames, ModelTable, effort_of
from ccb.tunnel.wire.session_options import SessionOptions

NUMBERS = [100_000, 8_000, 1.0, 2.0, 0.1, 1.0]
THINKS, LEVELLESS, PLAIN = "lab/reason-1", "lab/reason-2", "lab/plain-1"


TABLE = ModelTable()
"""What the laptop has said."""

TABLE.learn_all(
    {THINKS: NUMBERS, LEVELLESS: NUMBERS, PLAIN: NUMBERS}, {THINKS: ["minimal", "low", "high"], LEVELLESS: []}
)


def body(model: str, options: SessionOptions) -> dict[str, object]:
    return reasoning_fields(options, model, TABLE.facts(model), 8_000, may_think=False)[0]


def effort(model: str, wanted: str | None) -> str:
    return effort_of(model, TABLE.facts(model), wanted)


def thinks(model: str) -> bool:
    return can_think(model, TABLE.facts(model))


@pytest.mark.parametrize(
    ("wanted", "asked"), [("low", "low"), ("medium", "low"), ("high", "high"), ("max", "high"), (None, "")]
)
def test_the_nearest_level_that_a_model_has_is_asked_for(wanted: str | None, asked: str) -> None:
    assert effort(THINKS, wanted) == asked
    assert body(THINKS, SessionOptions(effort=wanted)) == ({"output_config": {"effort": asked}} if asked else {})
    assert effort(PLAIN, wanted) == effort(LEVELLESS, wanted) == ""


def test_a_budget_and_its_end_reach_models_that_think_and_no_others() -> None:
    enabled = {"type": "enabled", "budget_tokens": 4_000}
    assert body(THINKS, SessionOptions(max_thinking_tokens=4_000)) == {"thinking": enabled}
    assert body(LEVELLESS, SessionOptions(max_thinking_tokens=0)) == {"thinking": {"type": "disabled"}}
    for options in (SessionOptions(max_thinking_tokens=4_000, effort="high"), SessionOptions(max_thinking_tokens=0)):
        assert body(PLAIN, options) == {}
    assert thinks(THINKS) and thinks(LEVELLESS) and thinks("claude-opus-4-5")
    assert not thinks(PLAIN) and not thinks("gpt-x")


def test_options_of_an_older_laptop_and_broken_ones_are_read() -> None:
    table = ModelTable()
    table.learn_all({"lab/old-1": NUMBERS, "lab/bad-1": [1, "x"], "lab/long-1": [1] * 10}, {"lab/old-1": "high"})
    assert table.facts("lab/old-1").context_window == 100_000 and table.facts("lab/old-1").efforts is None
    assert table.facts("lab/bad-1") == table.facts("lab/long-1") == table.facts("never-heard-of-1")


def test_short_names_of_the_person_stand_for_models() -> None:
    names = ModelNames({"swift": THINKS, "bad": 3, "haiku": "lab/tiny-1"})
    assert names.may_be("swift") and resolve_model("swift", names) == THINKS
    assert resolve_model("swift[1m]", names) == f"{THINKS}[1m]" and resolve_model("bad", names) == "bad"
    assert small_model("claude-opus-4-5", "", names) == "lab/tiny-1"
    assert resolve_model("haiku") == "claude-haiku-4-5" and not ModelNames().may_be("swift"), "in one session only"


def test_small_questions_go_to_the_small_model_of_the_family_or_to_the_one_that_the_laptop_names() -> None:
    assert small_model("claude-opus-4-5", "") == "claude-haiku-4-5"
    assert small_model("openai/gpt-5", "") == "openai/gpt-5", "an unknown family has no known small model"
    assert small_model("openai/gpt-5", "openai/gpt-5-mini") == "openai/gpt-5-mini"
    assert SMALL == "small"
