"""The registry of tools: its order, its declarations, and tools that come and go between turns."""

from __future__ import annotations

import hashlib
import json

import pytest

from ccb.remote.tools.tool_contract import Tool, ToolContext, ToolDeclaration, ToolResult
from ccb.remote.tools.toolset import Toolset, default_tools
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.tool_traits import BUILT_IN, Effect, RuleKind, ToolTraits

GOLDEN_TOOLS = "d06d3927b6f2138a87f3ba43fd459b5e05c94f9e3d1df11b912ee9a807625350"


class Brought(Tool):
    """A tool that some server brings."""

    def __init__(self, name: str, description: str = "Does something.") -> None:
        self.declaration = ToolDeclaration(ToolTraits(name, Effect.NETWORK), description, {"type": "object"})

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        return ToolResult(self.name)


def names(registry: Toolset) -> list[str]:
    return [tool.name for tool in registry]


def test_the_built_in_tools_are_those_of_the_table_and_change_only_on_purpose() -> None:
    assert {tool.name: tool.traits for tool in default_tools()} == BUILT_IN
    assert names(default_tools()) == list(BUILT_IN)
    told = json.dumps([[tool.name, tool.description, tool.input_schema] for tool in default_tools()])
    assert hashlib.sha256(told.encode()).hexdigest() == GOLDEN_TOOLS, "a change is a decision: caches start anew"


@pytest.mark.parametrize("tool", [*default_tools()], ids=lambda tool: tool.name)
def test_a_declaration_fits_its_schema(tool: Tool) -> None:
    properties = tool.input_schema["properties"]
    if tool.traits.rules is RuleKind.PATH:
        assert tool.traits.path is not None
    if tool.traits.path is not None:
        path = tool.traits.path
        assert properties[path.key]["type"] == "string"
        assert (path.key in tool.input_schema["required"]) is (path.default == "")
        assert not path.glob_key or properties[path.glob_key]["type"] == "string"
    if tool.traits.rules is RuleKind.COMMAND:
        assert "command" in tool.input_schema["required"]
    if tool.traits.covered_by:
        assert BUILT_IN[tool.traits.covered_by].effect is tool.traits.effect


def test_added_tools_come_with_the_next_turn_after_the_others_in_a_stable_order() -> None:
    registry = default_tools()
    registry.add([Brought("mcp__b__x"), Brought("mcp__a__y")])
    registry.add([Brought("mcp__a__x")])
    assert names(registry) == list(BUILT_IN)
    registry.begin_turn()
    assert names(registry) == [*BUILT_IN, "mcp__a__x", "mcp__a__y", "mcp__b__x"]
    registry.add([Brought("mcp__a__a")])
    registry.begin_turn()
    assert names(registry)[-2:] == ["mcp__b__x", "mcp__a__a"], "what the model knows keeps its place"


def test_turns_without_changes_get_the_same_tools() -> None:
    registry = default_tools()
    tool = Brought("mcp__a__x")
    registry.add([tool])
    first = registry.begin_turn()
    registry.remove(["mcp__a__x", "mcp__a__never"])
    registry.add([tool])
    with pytest.raises(ValueError, match="Bash"):
        registry.add([Brought("Bash"), Brought("mcp__a__y")])
    with pytest.raises(ValueError, match="Read"):
        registry.remove(["Read"])
    assert registry.begin_turn() == first, "as after a server has reconnected"


def test_a_changed_tool_keeps_its_place_and_a_removed_one_goes() -> None:
    registry = default_tools()
    registry.add([Brought("mcp__a__x"), Brought("mcp__a__y")])
    registry.begin_turn()
    registry.add([Brought("mcp__a__x", "Does it better.")])
    registry.begin_turn()
    assert [*registry][len(BUILT_IN)].description == "Does it better."
    registry.remove(["mcp__a__x"])
    assert names(registry)[-2:] == ["mcp__a__x", "mcp__a__y"]
    registry.begin_turn()
    assert names(registry) == [*BUILT_IN, "mcp__a__y"]
