"""What a client demands of each turn: a value that fits its schema, and a limit on the cost."""

from __future__ import annotations

import pytest
from tests.remote.agent_kit import Reply, World, assert_valid, calls, make_world, says

from ccb.remote.agent.limits.run_limits import MAX_TRIES
from ccb.remote.session.clients.client_setup import demanded
from ccb.tunnel.wire import SessionOptions

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
    world = world_with(*script, options=SessionOptions(max_budget_usd=0.0001), cost=0.0)
    result = await world.turn()
    assert (result["subtype"], result["is_error"]) == ("error_max_budget_usd", True)
    assert (result["errors"], result["terminal_reason"]) == (["Reached maximum budget ($0.0001)"], "budget_exhausted")
    assert len(world.transport.call_ids) == 1
    assert_valid(world.history())
    rich = world_with(says("cheap"), options=SessionOptions(max_budget_usd=0.0001), cost=1.0)
    assert (await rich.turn())["subtype"] == "success"  # only what this client has spent counts


def test_a_schema_that_is_none_of_an_object_is_refused() -> None:
    with pytest.raises(ValueError, match="of an object"):
        demanded(make_world().agent.config, SessionOptions(json_schema={"type": "array"}), 0.0)
