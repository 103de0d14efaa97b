"""A tool of an MCP server that decides on tool calls in place of a person (`--permission-prompt-tool mcp__…`)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ccb.tunnel.wire.requests import Success, ToolPermission

from ...tools.contract import Tool, ToolContext

Json = dict[str, Any]


async def ask_tool(tool: Tool, name: str, tool_input: Json, tool_use_id: str, context: ToolContext) -> ToolPermission:
    """Return what `tool` answers about a call of the tool `name`. Anything that is not a clear yes is a no."""
    question = {"tool_name": name, "input": tool_input, "tool_use_id": tool_use_id}
    mine = replace(context.call, tool_use_id=tool_use_id, for_person=True)
    result = await tool.run(question, context.for_call(mine))
    text = result.content
    if not isinstance(text, str) or result.is_error:
        return ToolPermission(False, f"{tool.name} did not decide: {text}"[:2000])
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return ToolPermission(False, f"{tool.name} did not decide: its answer is no JSON object.")
    return ToolPermission.from_answer(Success("", answer))
