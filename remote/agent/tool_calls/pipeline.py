"""The pipeline of a tool call: from the model's tool_use block to the recorded tool_result.

A call passes the steps in BEFORE, one after the other. Each step returns the call, perhaps with another input, or
raises CallRefused. If no step refuses, the tool runs, and the outcome passes `post_tool_use`. Every outcome, also that
of a refused call, passes the steps in AFTER. A failing tool, a refusal and a failed check are all outcomes with a
result for the model; other exceptions are faults of the worker."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from ccb.tunnel.wire.records import ToolStartRecord

from ...hooks.outcome import NOTHING
from ...tools.output import limited
from ...tools.schema import issues
from ...tools.todo import TodoWrite
from .. import agent_hooks
from ..history.conversation import tool_result_message
from .call import (
    CallOutcome,
    CallRefused,
    DecidedBy,
    ParsedCall,
    PipelineContext,
    denied,
    lent,
)
from .executor import ToolCall
from .permission import permission
from .running import run
from .validation import parse, validate

if TYPE_CHECKING:
    pass

Json = dict[str, Any]

_log = logging.getLogger(__name__)


async def run_call(context: PipelineContext, call: ToolCall) -> CallOutcome:
    """Run a call through all steps, record its result and return its outcome. The caller commits."""
    try:
        parsed = parse(call)
        for before in BEFORE:
            parsed = await before(context, parsed)
        ran = replace(await run(context, parsed), decided_by=parsed.allowed_by)
        outcome = await post_tool_use(context, parsed, ran)
    except CallRefused as refused:
        outcome = refused.outcome
    for after in AFTER:
        outcome = await after(context, call, outcome)
    return outcome


def may_run_in_parallel(call: ToolCall) -> bool:
    """Return whether the call may run beside others. A call that will be refused for its input may."""
    if call.tool is None or call.broken or issues(call.input, call.tool.checked_schema):
        return True
    try:
        return call.tool.is_read_only(call.input)
    except Exception:  # noqa: BLE001 - a tool's bug makes it run alone
        _log.exception("is_read_only of %s failed", call.name)
        return False


async def pre_tool_use(context: PipelineContext, call: ParsedCall) -> ParsedCall:
    """Run the PreToolUse hooks, which may refuse the call, change its input, or decide on its permission. They see what
    the person would be asked."""
    call = replace(call, input=call.tool.question(call.input, lent(context)))
    outcome = await agent_hooks.before_tool(context.deps, context.recorder, call.name, call.id, call.input)
    if isinstance(call.tool, TodoWrite) and context.deps.hooks is not None and not outcome.blocked:
        old = lent(context).todos.items
        why_not = await agent_hooks.before_todos(context.deps, context.recorder, old, call.input["todos"])
        if why_not:
            raise CallRefused(denied(context, call, why_not, DecidedBy.HOOK))
    if outcome is NOTHING:
        return call
    if outcome.blocked or outcome.stops:
        text = f"PreToolUse:{call.name} hook error: {outcome.reason or outcome.stop_reason or 'no reason given'}"
        stop = (outcome.stop_reason or text) if outcome.stops else None
        raise CallRefused(replace(denied(context, call, text, DecidedBy.HOOK), stop_reason=stop))
    call = replace(call, hooked=outcome)
    if outcome.updated_input is None:
        return call
    return await validate(context, replace(call, input=outcome.updated_input))


async def record_start(context: PipelineContext, call: ParsedCall) -> ParsedCall:
    """Make the start durable before the tool runs, so that a restart knows that the call may have had effects."""
    context.started.start(call.id)
    context.recorder.record(ToolStartRecord(call.id, call.name))
    await context.recorder.commit()
    return call


async def post_tool_use(context: PipelineContext, call: ParsedCall, outcome: CallOutcome) -> CallOutcome:
    """Run the hooks that see the result of a tool that ran. What they say goes to the model after the result. They may
    replace the result."""
    hooked = await agent_hooks.after_tool(
        context.deps, context.recorder, call.name, call.id, call.input, outcome.result
    )
    if context.deps.hooks is not None:
        await context.deps.hooks.directory_is(lent(context).shells.cwd, context.recorder.agent_id)
    output = hooked.output
    if output is None and call.name.startswith("mcp__"):
        output = hooked.mcp_output
    if output is not None:
        from ...mcp.tool import replaced_result

        outcome = replace(outcome, result=replaced_result(output, lent(context).spill))
    if not hooked.stops:
        return outcome
    return replace(outcome, stop_reason=hooked.stop_reason or hooked.reason or f"a hook after {call.name} stopped it")


async def limit(context: PipelineContext, call: ToolCall, outcome: CallOutcome) -> CallOutcome:
    """Cut a text that is longer than the tool's declared limit, and keep the whole text in a file. Tools that limit
    their output themselves stay below the limit."""
    content = outcome.result.content
    if call.tool is None or not isinstance(content, str):
        return outcome
    text = limited(content, context.config.context.spill, call.name, call.tool.declaration.max_output_chars)
    return replace(outcome, result=replace(outcome.result, content=text))


async def record_end(context: PipelineContext, call: ToolCall, outcome: CallOutcome) -> CallOutcome:
    """Record the result."""
    result = outcome.result
    message = tool_result_message(call.id, result.content, is_error=result.is_error, structured=result.structured)
    if outcome.decided_by is not None:
        decision = {"decision": "accept" if outcome.denial is None else "reject", "source": outcome.decided_by.value}
        message["tool_result_meta"] = [{"id": call.id, "permission_decision": decision}]
    context.recorder.message(message)
    return outcome


BEFORE: tuple[Callable[[PipelineContext, ParsedCall], Awaitable[ParsedCall]], ...] = (
    validate,
    pre_tool_use,
    permission,
    record_start,
)
AFTER: tuple[Callable[[PipelineContext, ToolCall, CallOutcome], Awaitable[CallOutcome]], ...] = (
    limit,
    record_end,
)
