"""The hooks of an agent's turn: what they are told, and what the model hears of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ccb.tunnel.wire.control_protocol import ToolPermission
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import TodoRecord
from ccb.tunnel.wire.todo_list import COMPLETED

from ..context.instructions import InstructionFile
from ..hooks import hook_table as events
from ..hooks.hook_outcome import NOTHING, HookOutcome
from ..hooks.hook_runner import HookRunner
from ..model.retry import ModelError
from ..permissions.rules import Decision
from ..system.deadline import in_thread
from ..tools.tasks import TaskKind
from ..tools.tool_contract import ToolResult
from .tool_call import ParsedCall, ToolCall, TurnContext
from .turn_state import LoopState, TurnEnding

MAX_STOP_BLOCKS = 10  # in one turn


async def before_question(context: TurnContext, call: ParsedCall, decision: Decision) -> ToolPermission | None:
    """Return the answer of a PermissionRequest hook, None if a person has to give it."""
    outcome = await run_for_call(context, events.PERMISSION_REQUEST, call, permission_suggestions=decision.suggestions)
    if outcome.decision == "allow":
        return ToolPermission(True, updated_input=outcome.updated_input, updates=outcome.updates)
    if outcome.refuses:
        text = outcome.reason or outcome.stop_reason or f"A hook refused this use of {call.name}."
        return ToolPermission(False, text, interrupt=outcome.interrupt or outcome.stops)
    notice = {
        "message": f"ccb needs your permission to use {call.name}",
        "title": "Permission needed",
        "notification_type": "permission_prompt",
    }
    context.deps.hooks.run_later(events.NOTIFICATION, notice, "permission_prompt", agent_id=context.log.agent_id)
    return None


async def after_tool(context: TurnContext, call: ParsedCall, result: ToolResult) -> HookOutcome:
    if result.is_error:
        event = events.POST_TOOL_USE_FAILURE
        error = result.content if isinstance(result.content, str) else "the tool failed"
        outcome = await run_for_call(context, event, call, error=error, is_interrupt=False)
    else:
        event = events.POST_TOOL_USE
        outcome = await run_for_call(context, event, call, tool_response=_response(result))
    if outcome.blocked:
        context.deps.reminders.add(f"hook:{call.id}", f"{event}:{call.name} hook feedback:\n{outcome.reason}")
    return outcome


async def after_batch(context: TurnContext, calls: Sequence[Json]) -> HookOutcome:
    if not calls:
        return NOTHING
    outcome = await context.deps.hooks.run(
        events.POST_TOOL_BATCH, {"tool_calls": list(calls)}, agent_id=context.log.agent_id
    )
    remind(context, f"batch:{calls[0]['tool_use_id']}", events.POST_TOOL_BATCH, outcome)
    return outcome


def batched(call: ToolCall, result: ToolResult) -> Json:
    facts = {"tool_name": call.name, "tool_input": call.input, "tool_use_id": call.id}
    return {**facts, "tool_response": _response(result)}


async def works_on(context: TurnContext, path: str) -> None:
    found = await in_thread(context.deps.nested.touched, path)
    instructions_loaded(context.deps.hooks, context.log.agent_id, found, "nested_traversal")


def instructions_loaded(hooks: HookRunner, agent_id: str, files: Iterable[InstructionFile], why: str) -> None:
    """Run the hooks of instruction files that the model gets, beside the turn."""
    for file in files:
        reason, payload = why, {"file_path": file.path, "memory_type": file.scope.capitalize()}
        if file.importer:
            reason, payload["parent_file_path"] = "include", file.importer
        payload["load_reason"] = reason
        hooks.run_later(events.INSTRUCTIONS_LOADED, payload, reason, agent_id=agent_id)


async def before_todos(
    context: TurnContext, old: Sequence[TodoRecord], new: Sequence[TodoRecord], known_by: str
) -> str:
    """Run the hooks of todos that are added or completed. Return why one refuses it, "" if none does."""
    before = {getattr(each, known_by): each.status for each in old}
    for each in new:
        known = getattr(each, known_by)
        added, completed = known not in before, COMPLETED == each.status != before.get(known)
        about = {"task_subject": each.subject, "task_description": each.description or each.active_form}
        for event in (events.TASK_CREATED,) * added + (events.TASK_COMPLETED,) * completed:
            payload = {"task_id": each.id, **about}
            outcome = await context.deps.hooks.run(event, payload, agent_id=context.log.agent_id)
            if outcome.refuses:
                return f"{event} hook refused {each.subject!r}: {outcome.why}"
    return ""


async def agent_starts(context: TurnContext) -> None:
    agent_type = context.config.agent_type
    payload = {"agent_type": agent_type}
    outcome = await context.deps.hooks.run(events.SUBAGENT_START, payload, agent_type, agent_id=context.log.agent_id)
    remind(context, events.SUBAGENT_START, events.SUBAGENT_START, outcome)


async def before_stop(context: TurnContext, ending: TurnEnding, state: LoopState) -> HookOutcome:
    agent_id, agent_type = context.log.agent_id, context.config.agent_type
    running: list[Json] = []
    for task in context.config.context.tasks.running:
        if task.agent_id == agent_id:
            told = {"id": task.id, "status": task.status.value, "description": task.description[:1000]}
            is_agent = task.kind is TaskKind.AGENT
            more = {"agent_type": str(task.public.get("subagent_type"))} if is_agent else {}
            running.append({**told, "type": "subagent" if is_agent else "shell", **more})
    payload: Json = {
        "stop_hook_active": state.stop_blocks > 0,
        "last_assistant_message": ending.text,
        "background_tasks": running,
        "session_crons": [],
    }
    if agent_type:
        payload["agent_type"] = agent_type
    return await context.deps.hooks.run(
        events.SUBAGENT_STOP if agent_id else events.STOP, payload, agent_type, agent_id=agent_id
    )


def model_failed(context: TurnContext, failure: ModelError) -> None:
    if not context.log.agent_id:
        payload = {"error": failure.kind, "error_details": failure.message}
        context.deps.hooks.run_later(events.STOP_FAILURE, payload, failure.kind)


def remind(context: TurnContext, key: str, hook: str, outcome: HookOutcome) -> None:
    if outcome.context:
        said = "\n\n".join(outcome.context)
        context.deps.reminders.add(key, f"{hook} hook additional context: {said}")


async def run_for_call(context: TurnContext, event: str, call: ParsedCall, **fields: object) -> HookOutcome:
    payload = {"tool_name": call.name, "tool_input": call.input, "tool_use_id": call.id, **fields}
    outcome = await context.deps.hooks.run(event, payload, call.name, about=call.id, agent_id=context.log.agent_id)
    remind(context, f"{event}:{call.id}", f"{event}:{call.name}", outcome)
    return outcome


def _response(result: ToolResult) -> object:
    return result.content if result.structured is None else result.structured
