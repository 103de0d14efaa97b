"""The model's list of the steps of its work: TodoWrite gives all of it at once, the Task tools change its items."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.journal_records import TodoRecord
from ccb.tunnel.wire.todo_list import (
    COMPLETED,
    DELETED,
    IN_PROGRESS,
    MAX_SUBJECT,
    MAX_TODOS,
    PENDING,
    TodoList,
    public_todo,
)

from ..context.reminders import Occasion
from .input_schema import choice, object_of, text
from .tool_contract import Json, Tool, ToolContext, ToolDeclaration, ToolResult
from .tool_state import AgentTodos

_REMINDER = (
    "You have not updated your todo list for a while. If it is out of date, update it; do not mention this to the user."
)


def listed_todos(todos: TodoList) -> list[str]:
    """Return the lines in which the model is told the list."""
    return [f"- #{each.id} [{each.status}] {each.subject}" for each in todos.items]


def todo_reminder(todos: AgentTodos, occasion: Occasion) -> Iterable[str]:
    """Yield what is to be said of the list of an agent. With the list itself, this is a source of reminders."""
    if occasion is Occasion.TOOL_RESULTS and todos.round_passed():
        yield "\n".join([_REMINDER, *listed_todos(todos.list)])


class TodoTool(Tool):
    """A tool that changes the list. `known_by` is the part of an item by which its hooks know it again."""

    known_by: ClassVar[str] = "id"

    @abstractmethod
    def items(self, tool_input: Json, todos: AgentTodos) -> Sequence[TodoRecord]:
        """Return the items that a call makes or changes, as they are afterwards."""


_TEXT: Json = {"type": "string", "minLength": 1, "maxLength": MAX_SUBJECT}
_STATUS: Json = {"type": "string", "enum": [PENDING, IN_PROGRESS, COMPLETED]}
_TODO: dict[str, Json] = {"content": _TEXT, "status": _STATUS, "activeForm": _TEXT}
_TODOS = {"type": "array", "maxItems": MAX_TODOS, "description": "The updated list"}
_RULES = (
    "- Use it for work with three or more steps, not for a single quick one.\n"
    "- Keep exactly one item in_progress while you work, and mark each one completed as soon as it is done, not in "
    "batches. An item that failed or is only partly done is not completed."
)


class TodoWrite(TodoTool):
    """Replaces the whole list."""

    known_by = "subject"

    declaration = ToolDeclaration(
        tool_traits.TODO_WRITE,
        "Keeps a list of the steps of a longer task, visible to the user. Each call gives the whole list.\n"
        f"{_RULES}\n"
        "- content says what to do (“Run the tests”), activeForm what is being done (“Running the tests”).",
        object_of({"todos": {**_TODOS, "items": object_of(_TODO, *_TODO, closed=False)}}, "todos"),
    )

    def items(self, tool_input: Json, todos: AgentTodos) -> Sequence[TodoRecord]:
        return TodoList.written(tool_input["todos"]).items

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        busy = sum(item["status"] == IN_PROGRESS for item in tool_input["todos"])
        return f"{busy} items are in_progress: only one may be." if busy > 1 else None

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        old, new = context.todos.list, TodoList.written(tool_input["todos"])
        context.todos.use(new)
        return ToolResult(
            "The todo list has been updated. Go on with the current item, and keep the list up to date.",
            structured={
                "oldTodos": [public_todo(each) for each in old.items] if old.open else [],
                "newTodos": [public_todo(each) for each in new.items],
            },
        )


_MAX_DESCRIPTION = 10_000
_MAX_METADATA = 10_000  # characters as JSON: each change of a task writes all of it to the journal
_SUBJECT = text("What is to be done, in a few words: Run the tests", 1, MAX_SUBJECT)
_DESCRIPTION = text("What is to be done, in full", 0, _MAX_DESCRIPTION)
_ACTIVE_FORM = text("What is being done while it is in progress: Running the tests", 0, MAX_SUBJECT)
_METADATA = {"type": "object", "description": "Anything else to keep with the task"}
_ID = text("The id of the task", 1)
_IDS = {"type": "array", "items": {"type": "string"}}


class TaskCreate(TodoTool):
    """Adds an item."""

    declaration = ToolDeclaration(
        tool_traits.TASK_CREATE,
        "Adds a task to the list of what you are going to do, visible to the user. It begins as pending; TaskUpdate "
        f"changes it. Nothing runs by itself: agents and commands in the background are other tasks.\n{_RULES}",
        object_of(
            {"subject": _SUBJECT, "description": _DESCRIPTION, "activeForm": _ACTIVE_FORM, "metadata": _METADATA},
            "subject",
            "description",
        ),
    )

    def items(self, tool_input: Json, todos: AgentTodos) -> Sequence[TodoRecord]:
        active, told, more = (tool_input.get(name) for name in ("activeForm", "description", "metadata"))
        return [TodoRecord(todos.new_id, tool_input["subject"], PENDING, active or "", told or "", metadata=more or {})]

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        todos = context.todos.list
        if todos.open and len(todos.items) >= MAX_TODOS:
            return f"The list has {MAX_TODOS} tasks: delete or complete some first."
        return _why_not(self.items(tool_input, context.todos))

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        [item] = self.items(tool_input, context.todos)
        _change(context, [item])
        return ToolResult(
            f"Task #{item.id} created successfully: {item.subject}",
            structured={"task": {"id": item.id, "subject": item.subject, "description": item.description}},
        )


class TaskUpdate(TodoTool):
    """Changes or deletes an item."""

    declaration = ToolDeclaration(
        tool_traits.TASK_UPDATE,
        "Changes a task of the list: set status to in_progress when you begin it and to completed when it is done; "
        "deleted removes it. Only what you give changes.",
        object_of(
            {
                "taskId": _ID,
                "subject": _SUBJECT,
                "description": _DESCRIPTION,
                "activeForm": _ACTIVE_FORM,
                "status": choice("The new status", PENDING, IN_PROGRESS, COMPLETED, DELETED),
                "addBlocks": {**_IDS, "description": "Ids of tasks that can begin only after this one"},
                "addBlockedBy": {**_IDS, "description": "Ids of tasks that come before this one"},
                "owner": text("Who does it", 0, MAX_SUBJECT),
                "metadata": {**_METADATA, "description": "Keys to keep with the task; null removes one"},
            },
            "taskId",
        ),
    )

    def items(self, tool_input: Json, todos: AgentTodos) -> Sequence[TodoRecord]:
        old = todos.list.named(tool_input["taskId"])
        return [] if old is None else [_updated(old, tool_input), *_blocked(old, tool_input, todos.list)]

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        named = [*tool_input.get("addBlocks", ()), *tool_input.get("addBlockedBy", ())]
        unknown = [each for each in named if context.todos.list.named(each) is None or each == tool_input["taskId"]]
        return f"There is no other task #{unknown[0]}." if unknown else _why_not(self.items(tool_input, context.todos))

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        task_id, items = tool_input["taskId"], self.items(tool_input, context.todos)
        told: Json = {"success": bool(items), "taskId": task_id, "updatedFields": []}
        old = context.todos.list.named(task_id)
        if old is None:
            text = f"Task #{task_id} not found"
            return ToolResult(text, is_error=True, structured={**told, "error": "Task not found"})
        changed = [name for name, part in _PARTS.items() if getattr(items[0], part) != getattr(old, part)]
        if items[0].status != old.status:
            told["statusChange"] = {"from": old.status, "to": items[0].status}
        if len(items) > 1:
            changed.append("blocks")
        if items[0].status == DELETED:
            changed = [DELETED]
        _change(context, items)
        told["updatedFields"] = changed
        return ToolResult(f"Updated task #{task_id} {', '.join(changed)}".rstrip(), structured=told)


_PARTS = {
    "subject": "subject",
    "description": "description",
    "activeForm": "active_form",
    "status": "status",
    "owner": "owner",
    "blockedBy": "blocked_by",
    "metadata": "metadata",
}
"""The parts of an item that TaskUpdate changes, by their public names."""


def _updated(old: TodoRecord, tool_input: Json) -> TodoRecord:
    named = {part: tool_input[name] for name, part in _PARTS.items() if name in tool_input}
    metadata = {**old.metadata, **tool_input.get("metadata", {})}
    named["metadata"] = {name: value for name, value in metadata.items() if value is not None}
    named["blocked_by"] = list(dict.fromkeys([*old.blocked_by, *tool_input.get("addBlockedBy", ())]))
    return replace(old, **named)


def _blocked(old: TodoRecord, tool_input: Json, todos: TodoList) -> list[TodoRecord]:
    """Return the other items that are to come after `old`, and did not before."""
    others = filter(None, map(todos.named, dict.fromkeys(tool_input.get("addBlocks", ()))))
    return [replace(each, blocked_by=[*each.blocked_by, old.id]) for each in others if old.id not in each.blocked_by]


def _why_not(items: Iterable[TodoRecord]) -> str | None:
    fits = all(len(json.dumps(each.metadata)) <= _MAX_METADATA for each in items)
    return None if fits else f"The metadata of a task may have {_MAX_METADATA:,} characters."


def _change(context: ToolContext, items: Iterable[TodoRecord]) -> None:
    for item in items:
        context.todos.use(context.todos.list.changed(item))
        context.call.todo_changed(item)


class TaskGet(Tool):
    """Shows one item."""

    declaration = ToolDeclaration(
        tool_traits.TASK_GET, "Gives all that is known of a task of the list.", object_of({"taskId": _ID}, "taskId")
    )

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        todos = context.todos.list
        item = todos.named(tool_input["taskId"])
        if item is None:
            return ToolResult(f"Task #{tool_input['taskId']} not found", structured={"task": None})
        before, after = todos.blockers(item), [each.id for each in todos.items if item.id in each.blocked_by]
        parts = {
            "Status": item.status,
            "Description": item.description,
            "Owner": item.owner,
            "Blocked by": _ids(before),
            "Blocks": _ids(after),
        }
        lines = [f"{name}: {value}" for name, value in parts.items() if value]
        task = {name: getattr(item, name) for name in ("id", "subject", "description", "status")}
        return ToolResult(
            "\n".join([f"Task #{item.id}: {item.subject}", *lines]),
            structured={"task": {**task, "blocks": after, "blockedBy": before}},
        )


class TaskList(Tool):
    """Shows all items."""

    declaration = ToolDeclaration(
        tool_traits.TASK_LIST,
        "Gives the tasks of the list: id, status, subject, owner, what comes before. TaskGet gives the rest of one.",
        object_of({}),
    )

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        todos, lines, tasks = context.todos.list, [], []
        for item in todos.items:
            before = todos.blockers(item, only_open=True)
            owner, blocked = f" ({item.owner})" * bool(item.owner), f" [blocked by {_ids(before)}]" * bool(before)
            lines.append(f"#{item.id} [{item.status}] {item.subject}{owner}{blocked}")
            named = {"id": item.id, "subject": item.subject, "status": item.status, "blockedBy": before}
            tasks.append({**named, "owner": item.owner} if item.owner else named)
        return ToolResult("\n".join(lines) or "No tasks found", structured={"tasks": tasks})


def _ids(ids: Iterable[str]) -> str:
    return ", ".join(f"#{each}" for each in ids)
