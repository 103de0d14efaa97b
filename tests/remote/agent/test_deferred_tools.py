"""Deferred tools: found by a search, called through another tool, and never part of the request prefix."""

from __future__ import annotations

import hashlib
import json

import pytest
from tests.remote.agent_kit import Json, World, assert_valid, calls, error_reply, make_world, says

from ccb.remote.permissions.rules import Behavior, Decision
from ccb.remote.tools.tool_contract import Tool, ToolContext, ToolDeclaration, ToolResult
from ccb.remote.tools.tool_search import find
from ccb.remote.tools.toolset import DEFER_ABOVE_CHARS, Toolset
from ccb.tunnel.wire.tool_traits import Effect, ToolTraits

GOLDEN_PREFIX = "e7e9bad77037b17f"
SCHEMA: Json = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}


class Brought(Tool):
    """A tool that some server brings."""

    def __init__(self, name: str, description: str = "Does something.") -> None:
        self.declaration = ToolDeclaration(ToolTraits(name, Effect.NETWORK), description, SCHEMA)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        return ToolResult(f"{self.name} for {tool_input['to']}")


SLACK = [Brought("mcp__slack__send_message", "Sends a message to a channel."), Brought("mcp__slack__list_channels")]
MAIL = Brought("mcp__mail__sendMail", "Sends a mail.")


def prefix(world: World, index: int) -> bytes:
    """The bytes of a request before its messages."""
    return world.transport.bodies[index].partition(b'"messages":[')[0]


def result(world: World, tool_use_id: str) -> Json:
    blocks = [block for message in world.history() for block in message["content"]]
    return next(block for block in blocks if block.get("tool_use_id") == tool_use_id)


async def test_a_found_tool_is_called_and_the_prefix_keeps_its_bytes() -> None:
    found_by_name = {"tool_name": "mcp__slack__send_message", "params": {"to": "#a"}}
    world = make_world(
        calls(("s1", "ToolSearch", {"query": "+slack send"})),
        calls(("x1", "ExecuteExtraTool", found_by_name), message_id="m2"),
        calls(("x2", "mcp__slack__send_message", {"to": "#b"}), message_id="m3"),
        *[says("done", f"m{number}") for number in range(4, 7)],
    )
    registry = world.agent.config.tools
    registry.add(SLACK, deferred=True)
    await world.turn()
    found = result(world, "s1")["content"]
    assert json.dumps(SCHEMA) in found
    assert found.index("mcp__slack__send_message") < found.index("mcp__slack__list_channels")
    assert result(world, "x1")["content"] == "mcp__slack__send_message for #a"
    assert result(world, "x2")["content"] == "mcp__slack__send_message for #b", "also by its own name"
    await world.turn("again")
    registry.add([MAIL], deferred=True)
    await world.turn("more")
    assert len({prefix(world, index) for index in range(6)}) == 1
    assert hashlib.sha256(prefix(world, 0)).hexdigest()[:16] == GOLDEN_PREFIX, "a change is a decision"
    named = [tool["name"] for tool in world.transport.request_json(0)["tools"]]
    assert named == ["Look", "Change", "ToolSearch", "ExecuteExtraTool"]
    told = [json.dumps(message) for message in world.history() if message["role"] == "user"]
    assert sum("can be found with ToolSearch: mcp__slack" in each for each in told) == 1
    assert sum("can be found with ToolSearch: mcp__mail__sendMail" in each for each in told) == 1
    assert_valid(world.history())


async def test_a_call_through_another_tool_is_judged_as_the_tool_that_it_names() -> None:
    deny = Decision(Behavior.DENY, "The rule says no.", "rule")
    inputs: list[Json] = [
        {"tool_name": "mcp__mail__sendMail", "params": {"to": "bob"}},
        {"tool_name": "mcp__mail__sendMail", "params": {}},
        {"tool_name": "nosuch", "params": {}},
        {"params": {}},
    ]
    asked = calls(*[(f"x{number}", "ExecuteExtraTool", each) for number, each in enumerate(inputs, 1)])
    world = make_world(asked, says("done", "m2"), decisions={"mcp__mail__sendMail": deny})
    world.agent.config.tools.add([MAIL], deferred=True)
    await world.turn()
    assert "The rule says no." in result(world, "x1")["content"]
    assert "required parameter `to` is missing" in result(world, "x2")["content"]
    assert "No such tool available: nosuch" in result(world, "x3")["content"]
    assert "required parameter `tool_name` is missing" in result(world, "x4")["content"]


@pytest.mark.parametrize(
    "said",
    [
        "tools.2.custom.input_schema: JSON schema is invalid",
        "Invalid schema for function 'mcp__slack__list_channels': None is not of type 'object'",
        "GenerateContentRequest.tools[0].function_declarations[2].parameters.properties[x].type: must be specified",
    ],
)
async def test_a_tool_that_the_api_refuses_is_left_out_by_name_and_the_session_goes_on(said: str) -> None:
    refused = error_reply(400, "invalid_request_error", said)
    world = make_world(refused, says("done"), says("again", "m2"))
    world.agent.config.tools.add(SLACK)
    assert (await world.turn())["result"] == "done"
    assert (await world.turn("again"))["result"] == "again"
    named = [[tool["name"] for tool in world.transport.request_json(index)["tools"]] for index in range(3)]
    assert named[0] == ["Look", "Change", "mcp__slack__list_channels", "mcp__slack__send_message"]
    assert named[1] == named[2] == [name for name in named[0] if name != "mcp__slack__list_channels"]
    assert prefix(world, 1) == prefix(world, 2)
    (told,) = world.journal.messages("system", "informational")
    assert "mcp__slack__list_channels is left out" in told["content"] and said in told["content"]


async def test_a_refusal_that_is_about_no_tool_of_a_server_ends_the_turn() -> None:
    for said in ("tools.0.custom.input_schema: JSON schema is invalid", "tools.2.cache_control: too many", "no"):
        world = make_world(error_reply(400, "invalid_request_error", said))
        world.agent.config.tools.add(SLACK)
        assert (await world.turn())["is_error"]


def test_many_added_tools_are_deferred_from_then_on_and_few_are_not() -> None:
    registry = Toolset([])
    registry.add(SLACK)
    assert [tool.name for tool in registry.begin_turn()] == ["mcp__slack__list_channels", "mcp__slack__send_message"]
    assert registry.deferred == ()
    registry.add([Brought("mcp__big__x", "y" * DEFER_ABOVE_CHARS)])
    registry.begin_turn()
    assert len(registry.deferred) == 3
    registry.remove(["mcp__big__x"])
    registry.begin_turn()
    assert len(registry.deferred) == 2, "what the requests declare does not change back"
    assert [tool.name for tool in registry][-2:] == ["ToolSearch", "ExecuteExtraTool"]


def test_queries() -> None:
    tools = [*SLACK, MAIL]

    def names(query: str) -> list[str]:
        return [tool.name for tool in find(query, tools, 5)]

    assert names("select:mcp__mail__sendMail, mcp__slack__list_channels,nosuch") == [MAIL.name, SLACK[1].name]
    assert names("send")[0] in (MAIL.name, SLACK[0].name) and len(names("send")) == 2
    assert names("+mail send") == [MAIL.name]
    assert names("channel message") == [SLACK[0].name, SLACK[1].name]
    assert names("mcp__slack__list_channels")[0] == SLACK[1].name
    assert names("weather") == []
    assert len(find("mcp", tools, 2)) == 2
