"""ToolSearch and ExecuteExtraTool: the two tools through which the model finds deferred tools and calls them.

Found tools never join the tools that a request declares, so the request prefix stays the same for the whole session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Callable

from ccb.tunnel.wire import tool_traits

from ..contract import Tool, ToolContext, ToolDeclaration, ToolResult
from .search import find

Json = dict[str, Any]

_DEFAULT_RESULTS = 5
_SEARCH = (
    "Finds tools that are not listed here, and returns their descriptions and schemas. Their names come in"
    " system reminders. Call what it finds with ExecuteExtraTool.\n"
    "- `select:NAME,NAME` returns tools by their exact names.\n"
    "- Words look for tools by name and description; a word after `+` must be there (`+slack send`)."
)
_EXECUTE = (
    "Calls a tool that is not listed here. Look its schema up with ToolSearch first, and give `params` that fit it."
)


class ToolSearch(Tool):
    """Returns the declarations of deferred tools. `deferred` returns those that there are."""

    declaration = ToolDeclaration(
        tool_traits.TOOL_SEARCH,
        _SEARCH,
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "What to look for"},
                "max_results": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 20,
                    "description": f"{_DEFAULT_RESULTS} by default",
                },
            },
            "required": ["query"],
        },
    )

    def __init__(self, deferred: Callable[[], Sequence[Tool]]) -> None:
        self._deferred = deferred

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        query, tools = tool_input["query"], self._deferred()
        found = find(query, tools, tool_input.get("max_results", _DEFAULT_RESULTS))
        structured = {"matches": [each.name for each in found], "query": query, "total_deferred_tools": len(tools)}
        if not found:
            names = ", ".join(each.name for each in tools)
            return ToolResult(f"No tool was found. These there are: {names}", structured=structured)
        told = [
            {"name": each.name, "description": each.description, "input_schema": each.input_schema} for each in found
        ]
        lines = [json.dumps(each, ensure_ascii=False) for each in told]
        text = "\n".join(["<tools>", *lines, "</tools>", "Call them with ExecuteExtraTool."])
        return ToolResult(text, structured=structured)


class ExecuteExtraTool(Tool):
    """Stands for a call of the tool that it names: permissions, hooks and limits are those of that tool."""

    declaration = ToolDeclaration(
        tool_traits.EXECUTE_EXTRA_TOOL,
        _EXECUTE,
        {
            "type": "object",
            "properties": {
                "tool_name": {"type": "string", "minLength": 1, "description": "The exact name"},
                "params": {"type": "object", "description": "The input of that tool"},
            },
            "required": ["tool_name", "params"],
        },
    )

    def stands_for(self, tool_input: Json) -> tuple[str, Json] | None:
        name, params = tool_input.get("tool_name"), tool_input.get("params", {})
        return (name, params) if isinstance(name, str) and isinstance(params, dict) else None

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        return ToolResult("Name another tool.", is_error=True)
