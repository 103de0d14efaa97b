"""Decides whether a tool call may run: the rules first, then a hook, then the person."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, Request, RequestFailed, Success, ToolPermission

from ..permissions.rules import Behavior, Decision, headless_denial
from ..tools.tool_contract import FileVersion, Preview, Tool, ToolContext, ToolResult
from . import agent_hooks, agent_messages
from .agent_config import AgentConfig
from .tool_call import (
    CallOutcome,
    CallRefused,
    DecidedBy,
    ParsedCall,
    TurnContext,
    call_context,
    denied,
    error_result,
    mode_switch,
    validate,
)

Json = dict[str, Any]

_log = logging.getLogger(__name__)


async def permission(context: TurnContext, call: ParsedCall) -> ParsedCall:
    """Return the call with its cage and the granted input, after the engine, hooks or the person have allowed it. Raise
    CallRefused."""
    can_ask = context.deps.broker.can_ask(CAN_USE_TOOL)
    judge = None if can_ask or call.tool.traits.asks else context.config.offer.judge()
    decision = _with_hook(decide(context.config, call, can_ask=can_ask or judge is not None), call)
    if decision.behavior is Behavior.ALLOW:
        context.agent.denials.permitted()
        by = DecidedBy.HOOK if call.hooked.decision == "allow" else DecidedBy.CONFIG
        return replace(call, cage=decision.cage, pinned=decision.pinned, allowed_by=by)
    if decision.behavior is Behavior.DENY:
        raise CallRefused(await _deny_unasked(context, call, decision))
    answer = await agent_hooks.before_question(context, call, decision)
    if answer is not None:
        return await _answered(context, replace(call, allowed_by=DecidedBy.HOOK), decision, answer)
    preview = None
    if can_ask:
        preview = await _preview(context, call)
        answer = await _ask(context, call, decision, preview)
    elif judge is not None:
        answer = await ask_tool(judge, call.name, call.input, call.id, call_context(context))
    else:
        raise CallRefused(await _deny_unasked(context, call, decision))
    seen = preview.version if preview is not None else None
    return await _answered(context, replace(call, allowed_by=DecidedBy.PERSON_ALLOWED), decision, answer, seen)


async def _answered(
    context: TurnContext,
    call: ParsedCall,
    decision: Decision,
    answer: ToolPermission,
    seen: FileVersion | None = None,
) -> ParsedCall:
    """Act on the answer of a hook or the person, who has `seen` this version of the file."""
    if not answer.allow:
        text = answer.message or f"The user refused this use of {call.name}."
        by = DecidedBy.HOOK if call.allowed_by is DecidedBy.HOOK else DecidedBy.PERSON_REFUSED
        raise CallRefused(replace(denied(context, call, text, by), ends_turn=answer.interrupt))
    context.agent.denials.permitted()
    call = replace(call, cage=decision.cage)
    try:
        if answer.updated_input is None or answer.updated_input == call.input:
            return replace(call, pinned=decision.pinned, approved=seen)
        return await validate(context, replace(call, input=answer.updated_input))
    finally:  # a changed mode is for what comes after the call
        mode_switch(context).apply(answer.updates)
        agent_hooks.directories_added(context.deps.hooks, answer.updates, "permission_update")


def decide(config: AgentConfig, call: ParsedCall, *, can_ask: bool) -> Decision:
    tools = config.context
    shell_cwd = tools.shells.directory(tools.host, [tools.cwd, *tools.add_dirs])
    granted = call.hooked.decision == "allow"
    return config.permissions.decide(call.tool, call.input, can_ask=can_ask, shell_cwd=shell_cwd, granted=granted)


def _with_hook(decision: Decision, call: ParsedCall) -> Decision:
    if call.hooked.decision != "ask" or decision.behavior is not Behavior.ALLOW:
        return decision
    reason = call.hooked.reason or "A hook wants a question before this."
    return replace(decision, behavior=Behavior.ASK, reason=reason, reason_type="hook")


async def _deny_unasked(context: TurnContext, call: ParsedCall, decision: Decision) -> CallOutcome:
    if decision.behavior is Behavior.DENY:
        text = f"Permission to use {call.name} was denied: {decision.reason}"
    else:
        text = call.tool.declaration.if_nobody_can_be_asked or headless_denial(decision, call.name)
    context.log.message(agent_messages.permission_denied(call.name, call.id, text, decision))
    if await agent_hooks.after_denial(context, call, text):
        text += "\nA hook says that you may try this call again."
    return denied(context, call, text, DecidedBy.CONFIG)


async def _preview(context: TurnContext, call: ParsedCall) -> Preview | None:
    preview = await call.tool.preview(call.input, context.config.context)
    if isinstance(preview, ToolResult):
        raise CallRefused(CallOutcome(preview))
    return preview


async def _ask(context: TurnContext, call: ParsedCall, decision: Decision, preview: Preview | None) -> ToolPermission:
    change = preview.public if preview is not None else None
    question = agent_messages.tool_approval(call.tool.traits, call.input, call.id, decision, change)
    if context.log.agent_id:
        question = replace(question, agent_id=context.log.agent_id, agent=context.config.label)
    try:
        return await context.deps.broker.request(
            Request(CAN_USE_TOOL, question, about=call.name, agent_id=context.log.agent_id)
        )
    except RequestFailed as error:
        _log.exception("asking for %s failed", call.name)
        raise CallRefused(CallOutcome(error_result(f"Tool permission request failed: Error: {error}"))) from None


async def ask_tool(tool: Tool, name: str, tool_input: Json, tool_use_id: str, context: ToolContext) -> ToolPermission:
    """Return what `tool` answers about a call. Anything that is not a clear yes is a no."""
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
