"""TodoWrite: the model's own list of what is to be done."""

from __future__ import annotations

import copy
from typing import Any

from .contract import ToolContext, ToolResult

Json = dict[str, Any]

_MOST_TODOS = 200


_TODO_WRITE_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "todos": {
            "type": "array",
            "maxItems": _MOST_TODOS,
            "description": "The updated list",
            "items": {
                "type": "object",
                "properties": {
                    "content": {"type": "string", "minLength": 1, "maxLength": 2000},
                    "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                    "activeForm": {"type": "string", "minLength": 1, "maxLength": 2000},
                },
                "required": ["content", "status", "activeForm"],
            },
        }
    },
    "required": ["todos"],
    "additionalProperties": False,
}


class TodoWrite:
    """Replaces the whole list."""

    name = "TodoWrite"
    description = (
        "Keeps a list of the steps of a longer task, visible to the user. Each call gives the whole list.\n"
        "- Use it for work with three or more steps, not for a single quick one.\n"
        "- Keep exactly one item in_progress while you work, and mark each one completed as soon as it is done, not in "
        "batches. An item that failed or is only partly done is not completed.\n"
        "- content says what to do (“Run the tests”), activeForm what is being done (“Running the tests”)."
    )
    input_schema: Json = _TODO_WRITE_SCHEMA

    def is_read_only(self, tool_input: Json) -> bool:
        return True

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        return None

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        old = copy.deepcopy(context.todos)
        new = [{name: item[name] for name in ("content", "status", "activeForm")} for item in tool_input["todos"]]
        all_done = all(item["status"] == "completed" for item in new)
        context.todos[:] = [] if all_done else new
        return ToolResult(
            "The todo list has been updated. Go on with the current item, and keep the list up to date.",
            structured={"oldTodos": old, "newTodos": new},
        )
