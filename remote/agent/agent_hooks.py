"""The hooks around one tool call and at the end of a turn: what they are told, and what the model hears of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ccb.tunnel.wire.control_protocol import ToolPermission

from ..context.instructions import InstructionFile
from ..hooks.hook_outcome import NOTHING, HookOutcome
from ..hooks.hook_runner import HookRunner
from ..hooks.hook_table import (
    DIRECTORY_ADDED,
    INSTRUCTIONS_LOADED,
    NOTIFICATION,
    PERMISSION_DENIED,
    PERMISSION_REQUEST,
    POST_TOOL_BATCH,
    POST_TOOL_USE,
    POST_TOOL_USE_FAILURE,
    PRE_TOOL_USE,
    STOP,
    STOP_FAILURE,
    SUBAGENT_START,
    SUBAGENT_STOP,
    TASK_COMPLETED,
    TASK_CREATED,
    USER_PROMPT_EXPANSION,
)
from ..model.retry import ModelError
from ..permissions.rules import Decision
from ..slash_commands.command_registry import SlashCommand
from ..tools.tasks import Task, TaskKind
from ..tools.tool_contract import ToolResult
from .agent_config import AgentConfig, AgentDeps
from .agent_log import Recorder
from .turn_state import LoopState, TurnEnding

Json = dict[str, Any]

MAX_STOP_BLOCKS = 10
"""How often in one turn Stop hooks may let an agent go on."""


async def before_tool(
    deps: AgentDeps, recorder: Recorder, name: str, tool_use_id: str, tool_input: Json
) -> HookOutcome:
    """Run the PreToolUse hooks."""
    return await _run(deps, recorder, PRE_TOOL_USE, name, _call(name, tool_use_id, tool_input))


async def before_question(
    deps: AgentDeps, recorder: Recorder, name: str, tool_use_id: str, tool_input: Json, decision: Decision
) -> ToolPermission | None:
    """Run the hooks of a call that needs a permission. Return the answer of a PermissionRequest hook, None if a person
    has to give it; they are notified by Notification hooks."""
    if deps.hooks is None:
        return None
    payload = {**_call(name, tool_use_id, tool_input), "permission_suggestions": decision.suggestions}
    outcome = await _run(deps, recorder, PERMISSION_REQUEST, name, payload)
    if outcome.decision == "allow":
        return ToolPermission(True, updated_input=outcome.updated_input, updates=outcome.updates)
    if outcome.blocked or outcome.stops:
        text = outcome.reason or outcome.stop_reason or f"A hook refused this use of {name}."
        return ToolPermission(False, text, interrupt=outcome.interrupt or outcome.stops)
    notice = {
        "message": f"ccb needs your permission to use {name}",
        "title": "Permission needed",
        "notification_type": "permission_prompt",
    }
    deps.hooks.run_later(NOTIFICATION, notice, "permission_prompt", agent_id=recorder.agent_id)
    return None


async def after_denial(
    deps: AgentDeps, recorder: Recorder, name: str, tool_use_id: str, tool_input: Json, reason: str
) -> bool:
    """Run the hooks of a call that was denied without a question. Return whether the model may try it again."""
    payload = {**_call(name, tool_use_id, tool_input), "reason": reason}
    return (await _run(deps, recorder, PERMISSION_DENIED, name, payload)).retry


async def after_tool(
    deps: AgentDeps, recorder: Recorder, name: str, tool_use_id: str, tool_input: Json, result: ToolResult
) -> HookOutcome:
    """Run the hooks of a tool that has run. The model gets their reasons and contexts after the tool's result."""
    payload = _call(name, tool_use_id, tool_input)
    response = result.content if result.structured is None else result.structured
    if result.is_error:
        payload.update(
            error=result.content if isinstance(result.content, str) else "the tool failed", is_interrupt=False
        )
    else:
        payload.update(tool_response=response)
    event = POST_TOOL_USE_FAILURE if result.is_error else POST_TOOL_USE
    outcome = await _run(deps, recorder, event, name, payload)
    if outcome.blocked:
        deps.reminders.add(f"hook:{tool_use_id}", f"{event}:{name} hook feedback:\n{outcome.reason}")
    return outcome


async def after_batch(deps: AgentDeps, recorder: Recorder, calls: Sequence[Json]) -> HookOutcome:
    """Run the hooks of an answer whose calls have all ended, before the model is called again."""
    if deps.hooks is None or not calls:
        return NOTHING
    outcome = await deps.hooks.run(POST_TOOL_BATCH, {"tool_calls": list(calls)}, agent_id=recorder.agent_id)
    if outcome.context:
        said = "\n\n".join(outcome.context)
        deps.reminders.add(f"batch:{calls[0]['tool_use_id']}", f"{POST_TOOL_BATCH} hook additional context: {said}")
    return outcome


def batched(name: str, tool_use_id: str, tool_input: Json, result: ToolResult) -> Json:
    """Return what `after_batch` tells of one call."""
    response = result.content if result.structured is None else result.structured
    return {**_call(name, tool_use_id, tool_input), "tool_response": response}


async def before_expansion(deps: AgentDeps, command: SlashCommand, arguments: str, prompt: str) -> HookOutcome:
    """Run the hooks of a slash command whose text is about to go to the model."""
    if deps.hooks is None:
        return NOTHING
    payload = {
        "expansion_type": "mcp_prompt" if command.source == "mcp" else "slash_command",
        "command_name": command.name,
        "command_args": arguments,
        "command_source": command.source,
        "prompt": prompt,
    }
    return await deps.hooks.run(USER_PROMPT_EXPANSION, payload, command.name)


def instructions_loaded(hooks: HookRunner | None, agent_id: str, files: Iterable[InstructionFile], why: str) -> None:
    """Run the hooks of instruction files that the model gets, beside the turn."""
    if hooks is None:
        return
    for file in files:
        reason, payload = why, {"file_path": file.path, "memory_type": file.scope.capitalize()}
        if file.importer:
            reason, payload["parent_file_path"] = "include", file.importer
        payload["load_reason"] = reason
        hooks.run_later(INSTRUCTIONS_LOADED, payload, reason, agent_id=agent_id)


def directories_added(hooks: HookRunner | None, updates: Iterable[Mapping[str, Any]], source: str) -> None:
    """Run the hooks of directories that permission updates have added, beside the turn."""
    for update in updates:
        if hooks is not None and update.get("type") == "addDirectories":
            for each in update.get("directories") or ():
                hooks.run_later(DIRECTORY_ADDED, {"directory": str(each), "source": source}, source)


async def before_todos(deps: AgentDeps, recorder: Recorder, old: Sequence[Json], new: Sequence[Json]) -> str:
    """Run the hooks of todos that the agent is about to add or to mark completed. Return why one refuses it, "" if none
    does."""
    before = {str(each["content"]): each["status"] for each in old}
    for place, each in enumerate(new, 1):
        subject = str(each["content"])
        added, completed = subject not in before, "completed" == each["status"] != before.get(subject)
        for event in (TASK_CREATED,) * added + (TASK_COMPLETED,) * completed:
            payload = {"task_id": str(place), "task_subject": subject, "task_description": str(each["activeForm"])}
            assert deps.hooks is not None
            outcome = await deps.hooks.run(event, payload, agent_id=recorder.agent_id)
            if outcome.blocked or outcome.stops:
                return f"{event} hook refused {subject!r}: {outcome.reason or outcome.stop_reason or 'no reason given'}"
    return ""


async def agent_starts(deps: AgentDeps, recorder: Recorder, agent_type: str) -> None:
    """Run the SubagentStart hooks. The sub-agent gets what they say with its first prompt."""
    if deps.hooks is None:
        return
    payload = {"agent_type": agent_type}
    outcome = await deps.hooks.run(SUBAGENT_START, payload, agent_type, agent_id=recorder.agent_id)
    if outcome.context:
        said = "\n\n".join(outcome.context)
        deps.reminders.add(SUBAGENT_START, f"SubagentStart hook additional context: {said}")


async def before_stop(
    deps: AgentDeps, recorder: Recorder, ending: TurnEnding, state: LoopState, config: AgentConfig
) -> HookOutcome:
    """Run the Stop hooks, those of SubagentStop for a sub-agent. They learn whether the agent goes on already because
    of them, and what it has in the background."""
    if deps.hooks is None:
        return NOTHING
    event = SUBAGENT_STOP if recorder.agent_id else STOP
    agent_type, tasks = config.agent_type, config.context.tasks.running
    payload: Json = {
        "stop_hook_active": state.stop_blocks > 0,
        "last_assistant_message": ending.text,
        "background_tasks": [_task(each) for each in tasks if each.agent_id == recorder.agent_id],
        "session_crons": [],
    }
    if agent_type:
        payload["agent_type"] = agent_type
    return await deps.hooks.run(event, payload, agent_type, agent_id=recorder.agent_id)


def model_failed(deps: AgentDeps, recorder: Recorder, failure: ModelError) -> None:
    """Run the StopFailure hooks, which decide nothing, beside the session."""
    if deps.hooks is not None and not recorder.agent_id:
        payload = {"error": failure.kind, "error_details": failure.message}
        deps.hooks.run_later(STOP_FAILURE, payload, failure.kind)


async def _run(deps: AgentDeps, recorder: Recorder, event: str, name: str, payload: Json) -> HookOutcome:
    if deps.hooks is None:
        return NOTHING
    tool_use_id = str(payload["tool_use_id"])
    outcome = await deps.hooks.run(event, payload, name, about=tool_use_id, agent_id=recorder.agent_id)
    if outcome.context:
        said = "\n\n".join(outcome.context)
        deps.reminders.add(f"{event}:{tool_use_id}", f"{event}:{name} hook additional context: {said}")
    return outcome


def _task(task: Task) -> Json:
    """Return what hooks are told of a task in the background."""
    told: Json = {"id": task.id, "status": task.status.value, "description": task.description[:1000]}
    if task.kind is TaskKind.AGENT:
        return {**told, "type": "subagent", "agent_type": str(task.public.get("subagent_type"))}
    return {**told, "type": "shell"}


def _call(name: str, tool_use_id: str, tool_input: Json) -> Json:
    return {"tool_name": name, "tool_input": tool_input, "tool_use_id": tool_use_id}
