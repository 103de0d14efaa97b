"""TodoWrite: the model's list of the steps of a task."""

from __future__ import annotations

import copy
from typing import Any

from ccb.tunnel.wire import tool_traits

from .contract import Tool, ToolContext, ToolDeclaration, ToolResult

Json = dict[str, Any]

_MAX_TODOS = 200

_TODO_WRITE_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "todos": {
            "type": "array",
            "maxItems": _MAX_TODOS,
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


_TODO_WRITE_DESCRIPTION = (
    "Keeps a list of the steps of a longer task, visible to the user. Each call gives the whole list.\n"
    "- Use it for work with three or more steps, not for a single quick one.\n"
    "- Keep exactly one item in_progress while you work, and mark each one completed as soon as it is done, not in "
    "batches. An item that failed or is only partly done is not completed.\n"
    "- content says what to do (“Run the tests”), activeForm what is being done (“Running the tests”)."
)


class TodoList:
    """The todo list of a session. It becomes empty when all items are completed."""

    def __init__(self) -> None:
        self._items: list[Json] = []

    @property
    def items(self) -> list[Json]:
        return copy.deepcopy(self._items)

    def replace(self, items: list[Json]) -> None:
        done = all(item["status"] == "completed" for item in items)
        self._items = [] if done else copy.deepcopy(items)


class TodoWrite(Tool):
    """Replaces the whole list."""

    declaration = ToolDeclaration(tool_traits.TODO_WRITE, _TODO_WRITE_DESCRIPTION, _TODO_WRITE_SCHEMA)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        old = context.todos.items
        new = [{name: item[name] for name in ("content", "status", "activeForm")} for item in tool_input["todos"]]
        context.todos.replace(new)
        return ToolResult(
            "The todo list has been updated. Go on with the current item, and keep the list up to date.",
            structured={"oldTodos": old, "newTodos": new},
        )
