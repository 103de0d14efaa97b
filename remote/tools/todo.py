"""TodoWrite: the model's list of the steps of a task."""

from __future__ import annotations

from collections.abc import Iterable

from ccb.tunnel.wire import tool_traits

from ..context.reminders import Occasion
from .tool_contract import Json, Tool, ToolContext, ToolDeclaration, ToolResult
from .tool_state import TODO_SCHEMA, TodoList, plain_todo

_REMINDER = (
    "You have not updated your todo list for a while. If it is out of date, update it; do not mention this to the user."
)


def todo_reminder(todos: TodoList, occasion: Occasion) -> Iterable[str]:
    """Yield what is to be said of the list of an agent. With the list itself, this is a source of reminders."""
    if occasion is Occasion.TOOL_RESULTS and todos.round_passed():
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
        TODO_SCHEMA,
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        busy = sum(item["status"] == "in_progress" for item in tool_input["todos"])
        return f"{busy} items are in_progress: only one may be." if busy > 1 else None

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        old = context.todos.items
        new = [plain_todo(item) for item in tool_input["todos"]]
        context.todos.replace(new)
        return ToolResult(
            "The todo list has been updated. Go on with the current item, and keep the list up to date.",
            structured={"oldTodos": old, "newTodos": new},
        )
