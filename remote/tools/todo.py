"""TodoWrite: the model's list of the steps of a task."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Callable

from ccb.tunnel.wire import tool_traits

from ..context.reminders import Occasion
from .input_schema import issues, object_of
from .tool_contract import Json, Tool, ToolContext, ToolDeclaration, ToolResult

_MAX_TODOS = 200
_ROUNDS = 12  # of tool calls until the agent is reminded
_FIELDS = ("content", "status", "activeForm")
_TEXT = {"type": "string", "minLength": 1, "maxLength": 2000}
_STATUS = {"type": "string", "enum": ["pending", "in_progress", "completed"]}
_TODO = object_of({"content": _TEXT, "status": _STATUS, "activeForm": _TEXT}, *_FIELDS, closed=False)
_TODOS = {"type": "array", "maxItems": _MAX_TODOS, "description": "The updated list", "items": _TODO}
_SCHEMA = object_of({"todos": _TODOS}, "todos")
_REMINDER = (
    "You have not updated your todo list for a while. If it is out of date, update it; do not mention this to the user."
)


class TodoList:
    """The todo list of an agent. It becomes empty when all items are completed."""

    def __init__(self) -> None:
        self._items: list[Json] = []
        self._rounds = 0

    @property
    def items(self) -> list[Json]:
        return copy.deepcopy(self._items)

    def replace(self, items: list[Json]) -> None:
        done = all(item["status"] == "completed" for item in items)
        self._items = [] if done else copy.deepcopy(items)
        self._rounds = 0

    def restore(self, written: object) -> None:
        """Take over the list that the agent wrote in an earlier worker, as its call gave it."""
        if isinstance(written, list) and not issues({"todos": written}, _SCHEMA):
            self.replace([_plain(item) for item in written])

    def round_passed(self) -> bool:
        """Count a round of tool calls. Return whether the agent has not written its list for long."""
        self._rounds += 1
        if not self._items or self._rounds < _ROUNDS:
            return False
        self._rounds = 0
        return True


def _plain(item: Json) -> Json:
    return {name: item[name] for name in _FIELDS}


class TodoReminder:
    """A source of reminders. `todos` returns the list of its agent."""

    def __init__(self, todos: Callable[[], TodoList | None]) -> None:
        self._todos = todos

    def __call__(self, occasion: Occasion) -> Iterable[str]:
        todos = self._todos()
        if occasion is Occasion.TOOL_RESULTS and todos is not None and todos.round_passed():
            lines = [f"- [{item['status']}] {item['content']}" for item in todos.items]
            yield "\n".join([_REMINDER, *lines])


class TodoWrite(Tool):
    """Replaces the whole list."""

    declaration = ToolDeclaration(
        tool_traits.TODO_WRITE,
        "Keeps a list of the steps of a longer task, visible to the user. Each call gives the whole list.\n"
        "- Use it for work with three or more steps, not for a single quick one.\n"
        "- Keep exactly one item in_progress while you work, and mark each one completed as soon as it is done, not in "
        "batches. An item that failed or is only partly done is not completed.\n"
        "- content says what to do (“Run the tests”), activeForm what is being done (“Running the tests”).",
        _SCHEMA,
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        busy = sum(item["status"] == "in_progress" for item in tool_input["todos"])
        return f"{busy} items are in_progress: only one may be." if busy > 1 else None

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        old = context.todos.items
        new = [_plain(item) for item in tool_input["todos"]]
        context.todos.replace(new)
        return ToolResult(
            "The todo list has been updated. Go on with the current item, and keep the list up to date.",
            structured={"oldTodos": old, "newTodos": new},
        )
