"""What a client demands of each turn: a value that fits its schema, and a limit on the cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.remote.agent_kit import Reply, World, assert_valid, calls, closing, make_world, opening, says, text_block

from ccb.remote.agent.turn_state import MAX_TRIES, target_in
from ccb.remote.session.client_setup import demanded
from ccb.tunnel.wire.session_options import SessionOptions

SCHEMA = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}


def world_with(*script: Reply, options: SessionOptions, cost: float = 0.0) -> World:
    world = make_world(*script)
    world.agent.configure(demanded(world.agent.config, options, cost))
    return world


def gives(value: object, number: int) -> Reply:
    return calls((f"t{number}", "StructuredOutput", {"n": value}), message_id=f"m{number}")


async def test_a_turn_ends_with_a_value_that_fits_the_schema() -> None:
    script = [says("I am done", "m0"), gives("one", 1), gives(1, 2), says("again", "m3"), gives(2, 4)]
    world = world_with(*script, options=SessionOptions(json_schema=SCHEMA))
    result = await world.turn()
    assert (result["subtype"], result["structured_output"]) == ("success", {"n": 1})
    offered = world.transport.request_json(0)["tools"][-1]
    assert (offered["name"], offered["input_schema"]) == ("StructuredOutput", {"type": "object", **SCHEMA})
    assert "call StructuredOutput" in str(world.transport.request_json(1)["messages"][-1])
    assert "InputValidationError" in str(world.transport.request_json(2)["messages"][-1])
    assert (await world.turn("more"))["structured_output"] == {"n": 2}
    assert_valid(world.history())
    world.agent.configure(demanded(world.agent.config, SessionOptions(), 0.0))
    assert world.agent.config.structured is None


@pytest.mark.parametrize("wrong", [says("no", "m"), gives("one", 1)], ids=["no value", "a wrong value"])
async def test_a_model_that_gives_no_fitting_value_is_given_up(wrong: Reply) -> None:
    world = world_with(*[wrong] * MAX_TRIES, options=SessionOptions(json_schema=SCHEMA))
    result = await world.turn()
    assert (result["subtype"], result["is_error"]) == ("error_max_structured_output_retries", True)
    assert len(world.transport.call_ids) == MAX_TRIES


async def test_a_turn_ends_when_the_budget_is_spent() -> None:
    script = [calls(("t1", "Look", {"key": "a"})), says("never asked for", "m2")]
    world = world_with(*script, options=SessionOptions(max_budget_usd=0.00001), cost=0.0)
    result = await world.turn()
    assert (result["subtype"], result["is_error"]) == ("error_max_budget_usd", True)
    assert (result["errors"], result["terminal_reason"]) == (["Reached maximum budget ($0.00001)"], "budget_exhausted")
    assert len(world.transport.call_ids) == 1
    assert_valid(world.history())
    rich = world_with(says("cheap"), options=SessionOptions(max_budget_usd=0.0001), cost=1.0)
    assert (await rich.turn())["subtype"] == "success"  # only what this client has spent counts


def test_a_schema_that_is_none_of_an_object_is_refused() -> None:
    with pytest.raises(ValueError, match="of an object"):
        demanded(make_world().agent.config, SessionOptions(json_schema={"type": "array"}), 0.0)


def test_the_first_or_the_last_word_of_a_prompt_is_a_token_target() -> None:
    assert target_in(["+500k", "fix", "the", "tests"]) == 500_000
    assert target_in(["fix", "the", "tests", "+1.5M."]) == 1_500_000
    for prompt in ("what does the diff +500k mean here", "+500 lines", "add 500k", ""):
        assert target_in(prompt.split()) == 0, prompt


def wrote(tokens: int, number: int) -> Reply:
    return Reply([opening(f"m{number}"), text_block(0, f"part {number}"), closing("end_turn", tokens)])


async def test_an_agent_with_a_token_target_goes_on_until_it_is_reached() -> None:
    world = make_world(wrote(400, 0), calls(("t1", "Look", {"key": "a"})), wrote(600, 1), wrote(5, 2))
    result = await world.turn("look around +1k")
    assert (result["subtype"], result["result"]) == ("success", "part 1")
    said = str(world.transport.request_json(1)["messages"][-1])
    assert "used 400 of the 1,000 tokens that the user wants to be spent here (40 %)" in said
    assert_valid(world.history())
    told = [each.get("content") for each in world.journal.messages("system") if each.get("subtype") == "informational"]
    assert told == ["The agent works until it has written about 1,000 tokens."]
    assert (await world.turn("and on"))["result"] == "part 2", "the target was that of one turn"


async def test_an_agent_that_does_little_for_its_token_target_may_stop() -> None:
    world = make_world(*(wrote(600 if number < 2 else 10, number) for number in range(9)))
    result = await world.turn("+500k look around")
    assert (result["subtype"], result["result"]) == ("success", "part 3")
    told = [each.get("content") for each in world.journal.messages("system") if each.get("subtype") == "informational"]
    assert told[-1] == "It stops before the target of 500,000 tokens: little came of the last answers."


async def test_a_limit_of_turns_goes_before_a_token_target() -> None:
    world = make_world(wrote(10, 0))
    world.agent.configure(replace(world.agent.config, options=SessionOptions(max_turns=1)))
    assert (await world.turn("+500k look around"))["subtype"] == "success"
