"""TaskOutput and TaskStop: what came of a task in the background, and its end."""

from __future__ import annotations

import asyncio
from typing import Any

from ccb.tunnel.wire import tool_traits

from ...tasks.registry import Task, TaskKind, TaskStatus
from ..contract import Tool, ToolContext, ToolDeclaration, ToolResult

Json = dict[str, Any]

_MAX_WAIT_MS = 600_000
_WAIT_MS = 30_000
_MAX_CHARS = 30_000
_MAX_LINES = 2_000


def _schema(**more: Json) -> Json:
    task_id = {"type": "string", "description": "The id of the task"}
    return {
        "type": "object",
        "properties": {"task_id": task_id, **more},
        "required": ["task_id"],
        "additionalProperties": False,
    }


class TaskOutput(Tool):
    """Returns the state and the output of a task."""

    declaration = ToolDeclaration(
        tool_traits.TASK_OUTPUT,
        "Gives the status and the output of a task in the background: an agent or a command. You are told anyway when "
        "it ends, so use this only when you cannot go on without it. block waits for the end, for timeout milliseconds "
        "at most.",
        _schema(
            block={"type": "boolean", "description": "Wait for the end; true if left out"},
            timeout={
                "type": "integer",
                "minimum": 0,
                "maximum": _MAX_WAIT_MS,
                "description": f"Milliseconds; {_WAIT_MS} if left out",
            },
        ),
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        return _unknown(tool_input, context)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        task = context.tasks.get(tool_input["task_id"])
        assert task is not None
        if tool_input.get("block", True):
            over = asyncio.ensure_future(task.over.wait())
            try:
                await asyncio.wait({over}, timeout=tool_input.get("timeout", _WAIT_MS) / 1000)
            finally:
                over.cancel()
        parts = [f"<status>{task.status.value}</status>"]
        if task.end is not None:
            parts.append(f"<summary>{task.end.summary}</summary>")
        text = _output(task)
        if text.strip():
            parts.append(f"<output>\n{text.strip()[-_MAX_CHARS:]}\n</output>")
        return ToolResult("\n".join(parts))


class TaskStop(Tool):
    """Ends a task."""

    declaration = ToolDeclaration(
        tool_traits.TASK_STOP,
        "Ends a task in the background: an agent, or a command with everything it has started.",
        _schema(),
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        task = context.tasks.get(tool_input["task_id"])
        if task is not None and task.status is not TaskStatus.RUNNING:
            return f"The task {task.id} has ended already: {task.status.value}."
        return _unknown(tool_input, context)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        task = context.tasks.get(tool_input["task_id"])
        assert task is not None
        task.told = True
        await task.stop()
        text = _output(task) if task.kind is TaskKind.AGENT else ""
        said = f" The last that it said:\n{text}" if text.strip() else ""
        return ToolResult(f"The task {task.id} was stopped.{said}")


def _output(task: Task) -> str:
    said = task.end.result if task.end is not None else ""
    return said or task.read(_MAX_LINES, _MAX_CHARS)


def _unknown(tool_input: Json, context: ToolContext) -> str | None:
    if context.tasks.get(tool_input["task_id"]) is not None:
        return None
    known = ", ".join(context.tasks.known) or "none"
    return f"There is no task {tool_input['task_id']!r}. Known tasks: {known}."
