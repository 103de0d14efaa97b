"""The pipeline of a tool call: from the model's tool_use block to the recorded tool_result.

A call passes the steps in BEFORE, one after the other. Each step returns the call, perhaps with another input, or
raises CallRefused. If no step refuses, the tool runs, and the outcome passes `post_tool_use`. Every outcome, also that
of a refused call, passes the steps in AFTER. A failing tool, a refusal and a failed check are all outcomes with a
result for the model; other exceptions are faults of the worker."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.rewind import FileChangeRecord
from ccb.tunnel.wire.records import ToolStartRecord
from ccb.tunnel.wire.requests import CAN_USE_TOOL, Request, ToolPermission

from ...hooks.outcome import NOTHING, HookOutcome
from ...permissions.decision import Behavior, Decision
from ...permissions.headless import headless_denial
from ...sandbox.rules import CageRules
from ...tools.contract import FileVersion, Preview, Tool, ToolContext, ToolResult, UpcomingChange
from ...tools.output import limited
from ...tools.schema import issues
from ...tools.web.access import WebAccess
from .. import agent_hooks, messages
from ..deps import AgentConfig, AgentDeps
from ..history.conversation import tool_result_message
from ..mode_switch import ModeSwitch
from ..recorder import Recorder
from ..state import AgentState, DenialCounter
from .executor import ToolCall

if TYPE_CHECKING:
    from ccb.tunnel.wire.kinds.web import FetchedText

    from ...model.question import ModelQuestion, ModelReply

Json = dict[str, Any]

_log = logging.getLogger(__name__)

_NOT_WANTED = "The user doesn't want to proceed with this tool use."
_STOPPED = f"{_NOT_WANTED} It was stopped while it ran: what it had done until then stays done. Wait for the user."
NOT_RUN = f"{_NOT_WANTED} It was not run. Wait for the user."
"""The result of a call that was open when the turn ended, and had not started."""


@dataclass(frozen=True)
class CallOutcome:
    """How a tool call ended. `denial` is its entry in the `permission_denials` of the turn's result, None unless it was
    denied. `ends_turn`: the person refused the call and the rest of the turn with it. `feedback_due`: the model gets a
    note (DENIAL_FEEDBACK), because so many of its calls were denied. `stop_reason`: a hook ends the turn after this
    call, for this reason."""

    result: ToolResult
    denial: Json | None = None
    ends_turn: bool = False
    feedback_due: bool = False
    stop_reason: str | None = None


class CallRefused(Exception):
    """Raised by a step: the tool does not run."""

    def __init__(self, outcome: CallOutcome) -> None:
        super().__init__()
        self.outcome = outcome


class StartedCalls:
    """The tool calls that a turn has started, and the output of those that were stopped."""

    def __init__(self) -> None:
        self._printed: dict[str, str] = {}

    def start(self, tool_use_id: str) -> None:
        """Note that the tool is about to run."""
        self._printed[tool_use_id] = ""

    def stopped(self, tool_use_id: str, printed: str) -> None:
        """Note what the tool had printed when it was cancelled."""
        self._printed[tool_use_id] = printed

    def why_stopped(self, tool_use_id: str) -> str:
        """Return the result for a call that the person's interrupt left open."""
        if tool_use_id not in self._printed:
            return NOT_RUN
        printed = self._printed[tool_use_id].rstrip("\n")
        return f"{_STOPPED}\nIt had printed:\n{printed}" if printed else _STOPPED


@dataclass(frozen=True)
class PipelineContext:
    """The context that all steps of the pipeline share."""

    config: AgentConfig
    deps: AgentDeps
    recorder: Recorder
    agent: AgentState
    started: StartedCalls

    @property
    def denials(self) -> DenialCounter:
        return self.agent.denials


@dataclass(frozen=True)
class ParsedCall:
    """A call of a tool that exists, with an input that is a JSON object. `cage` is set by `permission`: the cage in
    which the tool runs commands, None for no cage. So is `pinned`: the real path that was decided on (see Decision).
    `approved`: the version of a file with which the call was compared for the person who allowed it. `hooked` is what
    PreToolUse hooks decided."""

    id: str
    tool: Tool
    input: Json
    cage: CageRules | None = None
    pinned: str = ""
    approved: FileVersion | None = None
    hooked: HookOutcome = NOTHING

    @property
    def name(self) -> str:
        return self.tool.name


async def run_call(context: PipelineContext, call: ToolCall) -> CallOutcome:
    """Run a call through all steps, record its result and return its outcome. The caller commits."""
    try:
        parsed = parse(call)
        for before in BEFORE:
            parsed = await before(context, parsed)
        outcome = await post_tool_use(context, parsed, await run(context, parsed))
    except CallRefused as refused:
        outcome = refused.outcome
    for after in AFTER:
        outcome = await after(context, call, outcome)
    return outcome


def may_run_in_parallel(call: ToolCall) -> bool:
    """Return whether the call may run beside others. A call that will be refused for its input may."""
    if call.tool is None or call.broken or issues(call.input, call.tool.input_schema):
        return True
    try:
        return call.tool.is_read_only(call.input)
    except Exception:  # noqa: BLE001 - a tool's bug makes it run alone
        _log.exception("is_read_only of %s failed", call.name)
        return False


def parse(call: ToolCall) -> ParsedCall:
    """Refuse a call of an unknown tool, and an input that is not a JSON object."""
    if call.tool is None:
        raise CallRefused(_tool_use_error(f"Error: No such tool available: {call.name}"))
    if call.broken:
        raise CallRefused(_tool_use_error(f"InputValidationError: {call.name}: {call.broken}"))
    return ParsedCall(call.id, call.tool, call.input)


async def validate(context: PipelineContext, call: ParsedCall) -> ParsedCall:
    """Refuse an input that does not fit the tool's schema, or that the tool itself rejects."""
    wrong = issues(call.input, call.tool.input_schema)
    if wrong:
        plural = "issue" if len(wrong) == 1 else "issues"
        text = f"{call.name} was called with a wrong input ({plural}):\n" + "\n".join(wrong)
        raise CallRefused(_tool_use_error(f"InputValidationError: {text}"))
    try:
        reason = call.tool.validate(call.input, _lent(context))
    except Exception as error:  # noqa: BLE001 - a failed check refuses
        _log.exception("validate of %s failed", call.name)
        reason = f"the input could not be checked: {type(error).__name__}: {error}"
    if reason is not None:
        raise CallRefused(_tool_use_error(reason))
    return call


async def pre_tool_use(context: PipelineContext, call: ParsedCall) -> ParsedCall:
    """Run the PreToolUse hooks, which may refuse the call, change its input, or decide on its permission. They see what
    the person would be asked."""
    call = replace(call, input=call.tool.question(call.input, _lent(context)))
    outcome = await agent_hooks.before_tool(context.deps, context.recorder, call.name, call.id, call.input)
    if outcome is NOTHING:
        return call
    if outcome.blocked or outcome.stops:
        text = f"PreToolUse:{call.name} hook error: {outcome.reason or outcome.stop_reason or 'no reason given'}"
        stop = (outcome.stop_reason or text) if outcome.stops else None
        raise CallRefused(replace(_denied(context, call, text), stop_reason=stop))
    call = replace(call, hooked=outcome)
    if outcome.updated_input is None:
        return call
    return await validate(context, replace(call, input=outcome.updated_input))


async def permission(context: PipelineContext, call: ParsedCall) -> ParsedCall:
    """Let the permission engine decide, and ask the person if it says so. Return the call with its cage and the granted
    input, which is validated again if the person changed it. Refuse the call if the check or the question fails."""
    can_ask = context.deps.broker.can_ask(CAN_USE_TOOL)
    try:
        decision = _with_hook(decide(context.config, call, can_ask=can_ask), call)
    except Exception as error:  # noqa: BLE001 - a failed check refuses
        _log.exception("the permission check of %s failed", call.name)
        text = f"The permission check failed ({error}); {call.name} was not run."
        raise CallRefused(CallOutcome(_error(text))) from None
    if decision.behavior is Behavior.ALLOW:
        context.denials.permitted()
        return replace(call, cage=decision.cage, pinned=decision.pinned)
    if decision.behavior is Behavior.DENY:
        raise CallRefused(_deny_unasked(context, call, decision))
    answer = await agent_hooks.before_question(context.deps, context.recorder, call.name, call.id, call.input, decision)
    if answer is None and not can_ask:
        raise CallRefused(_deny_unasked(context, call, decision))
    preview = None
    if answer is None:
        preview = await _preview(context, call)
        answer = await _ask(context, call, decision, preview)
    if not answer.allow:
        text = answer.message or f"The user refused this use of {call.name}."
        raise CallRefused(replace(_denied(context, call, text), ends_turn=answer.interrupt))
    context.denials.permitted()
    call = replace(call, cage=decision.cage)
    try:
        if answer.updated_input is None or answer.updated_input == call.input:
            return replace(call, pinned=decision.pinned, approved=preview.version if preview is not None else None)
        return await validate(context, replace(call, input=answer.updated_input))
    finally:  # a changed mode is for what comes after the call
        _modes(context).apply(answer.updates)


def decide(config: AgentConfig, call: ParsedCall, *, can_ask: bool) -> Decision:
    """Return the engine's decision on a call, made in the present directory of the agent's shell."""
    tools = config.context
    shell_cwd = tools.shells.directory(tools.host, [tools.cwd, *tools.add_dirs])
    granted = call.hooked.decision == "allow"
    return config.permissions.decide(call.tool, call.input, can_ask=can_ask, shell_cwd=shell_cwd, granted=granted)


def _with_hook(decision: Decision, call: ParsedCall) -> Decision:
    """Return the decision, as a question if a hook wants one."""
    if call.hooked.decision != "ask" or decision.behavior is not Behavior.ALLOW:
        return decision
    reason = call.hooked.reason or "A hook wants a question before this."
    return replace(decision, behavior=Behavior.ASK, reason=reason, reason_type="hook")


async def record_start(context: PipelineContext, call: ParsedCall) -> ParsedCall:
    """Make the start durable before the tool runs, so that a restart knows that the call may have had effects."""
    context.started.start(call.id)
    context.recorder.record(ToolStartRecord(call.id, call.name))
    await context.recorder.commit()
    return call


async def run(context: PipelineContext, call: ParsedCall) -> CallOutcome:
    """Run the tool. Meanwhile, send its live output and regular signs of life as progress."""
    recorder = context.recorder
    tool_context = dataclasses.replace(
        _lent(context),
        tool_use_id=call.id,
        agent_id=recorder.agent_id,
        cage=call.cage,
        pinned=call.pinned,
        approved=call.approved,
        left_out=tuple(context.config.permissions.left_out(call.name)),
        progress=lambda update: recorder.progress(call.id, messages.tool_progress(call.name, call.id, update)),
        remind=context.deps.reminders.add,
        stopped=lambda printed: context.started.stopped(call.id, printed),
        before_change=lambda change: _keep_version(context, call.id, change),
        web_access=WebAccess(
            lambda question: _ask_beside(context, question), lambda url: _fetch_on_laptop(context, url)
        ),
    )
    heartbeat = asyncio.ensure_future(_beat(context, call))
    try:
        result = await call.tool.run(call.input, tool_context)
        await _touched(context, call)
        return CallOutcome(result)
    except Exception as error:  # noqa: BLE001 - a tool's bug is a result, the model goes on
        _log.exception("tool %s failed", call.name)
        return CallOutcome(_error(f"{call.name} failed: {type(error).__name__}: {error}"))
    finally:
        heartbeat.cancel()


async def _touched(context: PipelineContext, call: ParsedCall) -> None:
    """Let the instruction files above a file that a call is about reach the model."""
    nested, path = context.deps.nested, call.tool.traits.file_in(call.input)
    if nested is not None and path and nested.is_new(path):
        await asyncio.get_running_loop().run_in_executor(None, nested.touched, path)


async def _ask_beside(context: PipelineContext, question: ModelQuestion) -> ModelReply:
    """Put a question of a tool to a model, and count what it used. Raise ModelError."""
    from ...model.question import ask, model_for

    deps, agent = context.deps, context.agent
    question = replace(question, model=model_for(question.model, agent.model))
    reply = await ask(deps.call_settings, deps.limits.max_retries, question)
    agent.ledger.add(reply.model, reply.usage)
    return reply


async def _fetch_on_laptop(context: PipelineContext, url: str) -> FetchedText:
    """Let the laptop of the driver fetch a page. Raise RequestFailed."""
    from ccb.tunnel.wire.kinds.web import WEB_FETCH, LaptopFetch

    request = Request(WEB_FETCH, LaptopFetch(url), about=url[:100], agent_id=context.recorder.agent_id)
    return await context.deps.broker.request(request)


async def _keep_version(context: PipelineContext, tool_use_id: str, change: UpcomingChange) -> None:
    """Put the present version of a file into the file history, durably. A version that cannot be kept does not stop
    the tool. Raise NotKept."""
    lost = ""
    if change.data is not None:
        history = context.config.context.history
        lost = await asyncio.get_running_loop().run_in_executor(None, history.keep, change.data)
    record = FileChangeRecord(tool_use_id, change.path, change.before, change.after, change.mode, lost)
    context.recorder.record(record)
    await context.recorder.commit()


async def post_tool_use(context: PipelineContext, call: ParsedCall, outcome: CallOutcome) -> CallOutcome:
    """Run the hooks that see the result of a tool that ran. What they say goes to the model after the result."""
    hooked = await agent_hooks.after_tool(
        context.deps, context.recorder, call.name, call.id, call.input, outcome.result
    )
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
    context.recorder.message(
        tool_result_message(call.id, result.content, is_error=result.is_error, structured=result.structured)
    )
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


def _deny_unasked(context: PipelineContext, call: ParsedCall, decision: Decision) -> CallOutcome:
    """Deny a call without a question, because a rule or the mode says so or nobody can be asked."""
    if decision.behavior is Behavior.DENY:
        text = f"Permission to use {call.name} was denied: {decision.reason}"
    else:
        text = call.tool.declaration.if_nobody_can_be_asked or headless_denial(decision, call.name)
    context.recorder.message(messages.permission_denied(call.name, call.id, text, decision))
    return _denied(context, call, text)


async def _preview(context: PipelineContext, call: ParsedCall) -> Preview | None:
    """Return what the call would do to a file. Refuse a call that would fail anyway."""
    try:
        preview = await call.tool.preview(call.input, context.config.context)
    except Exception:  # noqa: BLE001 - the person is told that there is no preview
        _log.exception("the preview of %s failed", call.name)
        return None
    if isinstance(preview, ToolResult):
        raise CallRefused(CallOutcome(preview))
    return preview


async def _ask(
    context: PipelineContext, call: ParsedCall, decision: Decision, preview: Preview | None
) -> ToolPermission:
    change = preview.public if preview is not None else None
    question = messages.tool_approval(call.tool.traits, call.input, call.id, decision, change)
    if context.recorder.agent_id:
        question = replace(question, agent_id=context.recorder.agent_id, agent=context.config.label)
    try:
        return await context.deps.broker.request(
            Request(CAN_USE_TOOL, question, about=call.name, agent_id=context.recorder.agent_id)
        )
    except Exception as error:  # noqa: BLE001 - a failed question refuses
        _log.exception("asking for %s failed", call.name)
        raise CallRefused(CallOutcome(_error(f"Tool permission request failed: Error: {error}"))) from None


def _modes(context: PipelineContext) -> ModeSwitch:
    return ModeSwitch(context.config.permissions, context.recorder)


def _lent(context: PipelineContext) -> ToolContext:
    """Return the resources that a tool gets before its call runs."""
    return replace(context.config.context, modes=_modes(context))


def _denied(context: PipelineContext, call: ParsedCall, text: str) -> CallOutcome:
    denial = {"tool_name": call.name, "tool_use_id": call.id, "tool_input": call.input}
    is_answer = call.tool.traits.asks  # a question that the person declines is no action that the model may not take
    return CallOutcome(_error(text), denial=denial, feedback_due=not is_answer and context.denials.denied())


async def _beat(context: PipelineContext, call: ParsedCall) -> None:
    """Send regular signs of life of the running tool, so that a silent tool does not look hung."""
    elapsed = 0.0
    while True:
        await asyncio.sleep(context.deps.heartbeat_s)
        elapsed += context.deps.heartbeat_s
        context.recorder.progress(call.id + ":heartbeat", messages.heartbeat(call.name, call.id, elapsed))


def _error(text: str) -> ToolResult:
    return ToolResult(text, is_error=True)


def _tool_use_error(text: str) -> CallOutcome:
    return CallOutcome(_error(f"<tool_use_error>{text}</tool_use_error>"))
