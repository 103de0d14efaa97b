"""Deferred tools are found and called; they never join those that a request declares, so its prefix stays the same."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Callable

from ccb.tunnel.wire import tool_traits

from .input_schema import number, object_of, text
from .tool_contract import Json, Tool, ToolContext, ToolDeclaration, ToolResult

_DEFAULT_RESULTS = 5
_SEARCH = {"query": text("What to look for", 1, 1000), "max_results": number(f"{_DEFAULT_RESULTS} by default", 1, 20)}
_CALL = {"tool_name": text("The exact name", 1), "params": {"type": "object", "description": "The input of that tool"}}


class ToolSearch(Tool):
    """Returns the declarations of deferred tools. `deferred` returns those that there are."""

    declaration = ToolDeclaration(
        tool_traits.TOOL_SEARCH,
        "Finds tools that are not listed here, and returns their descriptions and schemas. Their names come in"
        " system reminders. Call what it finds with ExecuteExtraTool.\n"
        "- `select:NAME,NAME` returns tools by their exact names.\n"
        "- Words look for tools by name and description; a word after `+` must be there (`+slack send`).",
        object_of(_SEARCH, "query", closed=False),
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
        "Calls a tool that is not listed here. Look its schema up with ToolSearch first, and give `params` that fit"
        " it.",
        object_of(_CALL, "tool_name", "params", closed=False),
    )

    def stands_for(self, tool_input: Json) -> tuple[str, Json] | None:
        name, params = tool_input.get("tool_name"), tool_input.get("params", {})
        return (name, params) if isinstance(name, str) and isinstance(params, dict) else None

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        return ToolResult("Name another tool.", is_error=True)


_SELECT = "select:"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS = re.compile(r"[^\W_]+")
_WHOLE_NAME, _NAME_PART, _IN_NAME, _IN_DESCRIPTION = 1_000, 10, 5, 2


def find(query: str, tools: Sequence[Tool], most: int) -> list[Tool]:
    """Return the tools that a query means, the best first. `select:A,B` names tools; otherwise the words of the query
    are looked for in names and descriptions, and a word after `+` must be there."""
    if query.lower().startswith(_SELECT):
        by_name = {tool.name.lower(): tool for tool in tools}
        names = [name.strip().lower() for name in query[len(_SELECT) :].split(",")]
        return list(dict.fromkeys(by_name[name] for name in names if name in by_name))
    scored = [(_score(query, tool), place, tool) for place, tool in enumerate(tools)]
    best = sorted((each for each in scored if each[0]), key=lambda each: (-each[0], each[1]))
    return [tool for _, _, tool in best[:most]]


def _score(query: str, tool: Tool) -> int:
    name = tool.name.lower()
    parts = {part.lower() for part in _WORDS.findall(_CAMEL.sub(" ", tool.name))}
    told = {word.lower() for word in _WORDS.findall(tool.description)}
    total = 0
    for term in query.lower().split():
        score = _WHOLE_NAME if term.lstrip("+") == name else 0
        for word in _WORDS.findall(term) if not score else ():
            score += _NAME_PART if word in parts else _IN_NAME if word in name else 0
            score += _IN_DESCRIPTION if word in told else 0
        if term.startswith("+") and not score:
            return 0
        total += score
    return total
