"""BashOutput, KillShell, TaskOutput, TaskStop."""

from __future__ import annotations

import asyncio

from ccb.tunnel.wire import tool_traits

from ..search_program.globs import BadRequest
from ..search_program.scan import Pattern
from ..system.deadline import in_thread
from .background_shells import BackgroundCommand
from .bash import aside_note, narrowing_note, stop_note
from .input_schema import flag, number, object_of, text
from .output import MAX_OUTPUT_CHARS, clean, limited
from .search_process import MAX_PATTERN, search
from .tasks import Task, TaskKind, TaskStatus
from .tool_contract import Json, Tool, ToolContext, ToolDeclaration, ToolRefused, ToolResult

_MAX_WAIT_MS = 600_000
_WAIT_MS = 30_000
_MAX_CHARS = 30_000
_MAX_LINES = 2_000

_TASK_ID = text("The id of the task")


class TaskOutput(Tool):
    """Returns the state and the output of a task."""

    declaration = ToolDeclaration(
        tool_traits.TASK_OUTPUT,
        "Gives the status and the output of a task in the background: an agent or a command. You are told anyway when "
        "it ends, so use this only when you cannot go on without it. block waits for the end, for timeout milliseconds "
        "at most.",
        object_of(
            {
                "task_id": _TASK_ID,
                "block": flag("Wait for the end; true if left out"),
                "timeout": number(f"Milliseconds; {_WAIT_MS} if left out", 0, _MAX_WAIT_MS),
            },
            "task_id",
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
        object_of({"task_id": _TASK_ID}, "task_id"),
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
    return said or task.last(_MAX_LINES, _MAX_CHARS)


def _unknown(tool_input: Json, context: ToolContext) -> str | None:
    if context.tasks.get(tool_input["task_id"]) is not None:
        return None
    known = ", ".join(context.tasks.known) or "none"
    return f"There is no task {tool_input['task_id']!r}. Known tasks: {known}."


_STATUS_CHARS = 200  # room for the status around the output
_MAX_FILTERED = 8 << 20  # bytes of new output that a filter looks at


class BashOutput(Tool):
    """Returns the new output of a background command."""

    declaration = ToolDeclaration(
        tool_traits.BASH_OUTPUT,
        "Gives what a background command (started by Bash with run_in_background) has put out since the last call, and "
        "its status. filter is a regular expression: only lines that match are shown, the others are gone.",
        object_of(
            {
                "bash_id": text("The ID of the background command"),
                "filter": text("Optional regular expression for the lines to show", most=MAX_PATTERN),
            },
            "bash_id",
        ),
        MAX_OUTPUT_CHARS + _STATUS_CHARS,
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        try:
            Pattern(tool_input.get("filter") or "")
        except BadRequest as error:
            return str(error)
        return _unknown_shell(tool_input["bash_id"], context)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        shell = context.shells.by_id[tool_input["bash_id"]]
        if shell.process.returncode is not None:
            shell.task.told = True
            await shell.task.over.wait()  # until it is known what it has left behind
        code, status = shell.process.returncode, shell.task.status
        start, end = shell.position, shell.output.total
        shell.position = end
        if tool_input.get("filter") and end > start:
            try:
                text = await _filtered(shell, start, end, tool_input["filter"], context)
            except ToolRefused:
                shell.position = start
                raise
        else:
            text = shell.output.text(start=start)
        parts = [f"<status>{status.value}</status>"]
        if status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
            parts.append(f"<exit_code>{code}</exit_code>")
        parts.append(f"<stdout>\n{text.rstrip()}\n</stdout>" if text.strip() else "(no new output)")
        if code is not None:
            cwd = context.shells.cwd
            stop = stop_note(shell.start.cage, text, code, cwd, shell.start.command)
            parts += [stop, await in_thread(narrowing_note, shell.start.command, cwd, context.roots)]
        parts = [*filter(None, (*parts, aside_note(shell.process)))]
        command, facts = shell.start.command[:2000], {"status": status.value, "exitCode": code}
        structured = {"shellId": shell.task.id, "command": command, **facts, "stdout": text, "stderr": ""}
        return ToolResult("\n\n".join(parts), structured=structured)


class KillShell(Tool):
    """Ends a background command."""

    declaration = ToolDeclaration(
        tool_traits.KILL_SHELL,
        "Ends a background command (started by Bash with run_in_background) and everything it has started.",
        object_of({"shell_id": text("The ID of the background command")}, "shell_id"),
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        return _unknown_shell(tool_input["shell_id"], context)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        shell = context.shells.by_id[tool_input["shell_id"]]
        task = shell.task
        if task.status is not TaskStatus.RUNNING:
            raise ToolRefused(f"Shell {task.id} is not running: its status is {task.status.value}.")
        task.told = True
        await task.stop()
        message = f"Successfully killed shell: {task.id} ({shell.start.command[:500]})"
        message = "\n".join(filter(None, (message, aside_note(shell.process))))
        return ToolResult(message, structured={"message": message, "shell_id": task.id})


def _unknown_shell(shell_id: str, context: ToolContext) -> str | None:
    if shell_id in context.shells.by_id:
        return None
    known = ", ".join(context.shells.by_id) or "none"
    return f"No shell found with ID: {shell_id}. Known: {known}."


async def _filtered(shell: BackgroundCommand, start: int, end: int, pattern: str, context: ToolContext) -> str:
    path = shell.output.path
    if not path:
        raise ToolRefused("The output could not be kept in a file, so it cannot be filtered: call without filter.")
    request = {"op": "filter", "path": path, "pattern": pattern, "start": max(start, end - _MAX_FILTERED), "end": end}
    found = await search(context, request)
    if found["partial"]:
        found["items"].append("[The filter takes too long; there may be more lines]")
    text = clean("\n".join(found["items"]).encode("utf-8", "replace"))
    return limited(text, context.spill, tool_traits.BASH_OUTPUT.name)
