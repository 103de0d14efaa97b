"""When the calls of an answer run, and the steps of a call: validate, hooks, permission, run, hooks, limit, record. A
refusing step raises CallRefused; every outcome is recorded."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Callable

from ccb.tunnel.wire.control_protocol import (
    CAN_USE_TOOL,
    SET_SANDBOX,
    Request,
    RequestFailed,
    RequestMoot,
    Success,
    ToolPermission,
)
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import FileChangeRecord, ToolStartRecord
from ccb.tunnel.wire.ndjson import dump, to_bytes
from ccb.tunnel.wire.spelling import spelled, unspelled
from ccb.tunnel.wire.web_fetch import WEB_FETCH, FetchedText

from ..hooks.hook_outcome import NOTHING
from ..hooks.hook_table import DIRECTORY_ADDED, PERMISSION_DENIED, PRE_TOOL_USE
from ..mcp.mcp_tools import replaced_result
from ..model.model_call import ModelCall, ModelQuestion, ReplyListener
from ..model.model_request import SMALL
from ..model.retry import RetryPolicy
from ..permissions.matchers import LEAVE_SANDBOX
from ..permissions.rules import Behavior, Decision, headless_denial
from ..session_store.journal import NotKept
from ..system.deadline import in_thread
from ..system.regular_files import ABSENT, NotAFile, digest_of
from ..tools.file_access import MAX_BYTES
from ..tools.input_schema import issues
from ..tools.output import limited
from ..tools.todo import TodoTool
from ..tools.tool_contract import FileVersion, Preview, Tool, ToolContext, ToolRefused, UpcomingChange, WebAccess
from . import agent_hooks, agent_messages
from . import tool_call as calls
from .agent_config import AgentConfig
from .conversation import tool_result_message
from .tool_call import CallOutcome, CallRefused, DecidedBy, ParsedCall, ToolCall, TurnContext

_log = logging.getLogger(__name__)


MAX_AT_ONCE = 10  # read-only calls
_ASIDE_TOKENS = 4_000  # in the answer to a question that a tool asks
_CANCEL_GRACE = 5.0  # seconds a cancelled tool has to clean up before the turn goes on without it


class ToolExecutor:
    """Runs calls in the model's order: read-only ones beside each other, any other one alone."""

    def __init__(self, context: TurnContext, ended: Callable[[ToolCall, CallOutcome], None]) -> None:
        self._context = context
        self._ended = ended
        self._tasks: list[asyncio.Task[None]] = []  # of the calls since the last drain
        self._barrier: list[asyncio.Task[None]] = []  # the last call that runs alone
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._stopped = False

    def submit(self, call: ToolCall) -> None:
        refused = call.tool is None or call.broken or issues(call.input, call.tool.checked_schema)
        parallel = bool(refused) or (call.tool is not None and call.tool.is_read_only(call.input))
        task = asyncio.ensure_future(self._call(call, self._barrier if parallel else [*self._tasks]))
        self._tasks.append(task)
        if not parallel:
            self._barrier = [task]

    async def drain(self) -> None:
        """Return when all calls are done. Raise what a call raised: that is a fault of the worker."""
        if self._tasks:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        self._tasks, self._barrier = [], []

    def halt(self) -> None:
        self._stopped = True

    async def cancel(self) -> None:
        self.halt()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            done, stubborn = await asyncio.wait(tasks, timeout=_CANCEL_GRACE)
            if stubborn:
                _log.error("%d cancelled tool calls have not ended in %s s", len(stubborn), _CANCEL_GRACE)
            for task in done:
                if not task.cancelled():
                    task.exception()

    async def _call(self, call: ToolCall, before: Sequence[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        async with self._slots:
            if self._stopped:
                return
            try:
                self._ended(call, await run_call(self._context, call))
                await self._context.log.commit()
            except Exception:
                self.halt()
                raise


async def run_call(context: TurnContext, call: ToolCall) -> CallOutcome:
    try:
        if call.tool is None:
            raise CallRefused(calls.tool_use_error(f"Error: No such tool available: {call.name}"))
        if call.broken:
            raise CallRefused(calls.tool_use_error(f"InputValidationError: {call.name}: {call.broken}"))
        parsed = await checked(context, ParsedCall(call.id, call.tool, call.input))
        ran = replace(await run_tool(context, parsed), decided_by=parsed.allowed_by)
        outcome = await post_tool_use(context, parsed, ran)
    except CallRefused as refused:
        outcome = refused.outcome
    result = outcome.result
    if call.tool is not None and isinstance(result.content, str):
        limit = call.tool.declaration.max_output_chars
        result = replace(result, content=limited(result.content, context.config.context.spill, call.name, limit))
        outcome = replace(outcome, result=result)
    message = tool_result_message(call.id, result.content, is_error=result.is_error, structured=result.structured)
    if outcome.decided_by is not None:
        decision = {"decision": "accept" if outcome.denial is None else "reject", "source": outcome.decided_by.value}
        message["tool_result_meta"] = [{"id": call.id, "permission_decision": decision}]
    context.log.message(message)
    return outcome


async def checked(context: TurnContext, call: ParsedCall) -> ParsedCall:
    """Pass a call through the checks, and record that it starts. A bug in a check refuses."""
    try:
        call = await calls.validate(context, call)
        call = await pre_tool_use(context, call)
        call = await permission(context, call)
    except (CallRefused, NotKept):
        raise
    except Exception as error:  # noqa: BLE001 - a failed check refuses
        _log.exception("a check of %s failed", call.name)
        text = f"{call.name} was not run, because a check of it failed: {type(error).__name__}: {error}"
        raise CallRefused(CallOutcome(calls.error_result(text))) from None
    context.printed[call.id] = ""  # durable before the tool runs: a restart must know that it may have had effects
    context.log.record(ToolStartRecord(call.id, call.name))
    await context.log.commit()
    return call


async def pre_tool_use(context: TurnContext, call: ParsedCall) -> ParsedCall:
    call = replace(call, input=call.tool.question(call.input, calls.call_context(context)))
    outcome = await agent_hooks.run_for_call(context, PRE_TOOL_USE, call)
    if isinstance(call.tool, TodoTool) and not outcome.blocked:
        todos = calls.call_context(context).todos
        items = call.tool.items(call.input, todos)
        why_not = await agent_hooks.before_todos(context, todos.list.items, items, call.tool.known_by)
        if why_not:
            raise CallRefused(calls.denied(context, call, why_not, DecidedBy.HOOK))
    if outcome is NOTHING:
        return call
    if outcome.refuses:
        text = f"PreToolUse:{call.name} hook error: {outcome.why}"
        stop = (outcome.stop_reason or text) if outcome.stops else None
        raise CallRefused(replace(calls.denied(context, call, text, DecidedBy.HOOK), stop_reason=stop))
    call = replace(call, hooked=outcome)
    if outcome.updated_input is None:
        return call
    return await calls.validate(context, replace(call, input=outcome.updated_input))


async def post_tool_use(context: TurnContext, call: ParsedCall, outcome: CallOutcome) -> CallOutcome:
    hooked = await agent_hooks.after_tool(context, call, outcome.result)
    await context.deps.hooks.directory_is(calls.call_context(context).shells.cwd, context.log.agent_id)
    output = hooked.own.get("updatedToolOutput")
    if output is None and call.name.startswith("mcp__"):
        output = hooked.own.get("updatedMCPToolOutput")
    if output is not None:
        outcome = replace(outcome, result=replaced_result(output, calls.call_context(context).spill))
    if not hooked.stops:
        return outcome
    return replace(outcome, stop_reason=hooked.stop_reason or hooked.reason or f"a hook after {call.name} stopped it")


async def run_tool(context: TurnContext, call: ParsedCall) -> CallOutcome:
    log = context.log

    def show(update: Json) -> None:
        live = {"output": update.get("output", ""), "total_bytes": update.get("total_bytes", 0)}
        elapsed = update.get("elapsed_seconds", 0)
        log.progress(call.id, agent_messages.tool_progress(call.name, call.id, elapsed, **live))

    async def beat() -> None:
        elapsed = 0.0
        while True:
            await asyncio.sleep(context.deps.heartbeat_s)
            elapsed += context.deps.heartbeat_s
            alive = agent_messages.tool_progress(call.name, call.id, round(elapsed), heartbeat=True)
            log.progress(call.id + ":heartbeat", alive)

    async def fetch_on_laptop(url: str) -> FetchedText:
        request = Request(WEB_FETCH, url, about=url[:100], agent_id=log.agent_id)
        return await context.deps.broker.request(request)

    mine = replace(
        calls.call_context(context).call,
        tool_use_id=call.id,
        agent_id=log.agent_id,
        cage=call.cage,
        pinned=call.pinned,
        approved=call.approved,
        left_out=tuple(context.config.permissions.left_out(call.name)),
        progress=show,
        remind=context.deps.reminders.add,
        stopped=lambda printed: context.printed.update({call.id: printed}),
        before_change=lambda change: _keep_version(context, call.id, change),
        todo_changed=context.deps.log.emit,
        web_access=WebAccess(lambda question: _ask_beside(context, question), fetch_on_laptop),
    )
    before = [await _version(context, path) for path in call.changes]
    heartbeat = asyncio.ensure_future(beat())
    try:
        for version in filter(None, before):
            lost = await _keep_version(context, call.id, version) if version.data is not None else ""
            if lost:
                text = f"Nothing was run: {spelled(version.path)} could not be brought back, as {lost}."
                how = f"To ask the user to run it, call {call.name} again with {LEAVE_SANDBOX}: true."
                return CallOutcome(calls.error_result(f"{text} {how}"))
        result = await call.tool.call(call.input, context.config.context.for_call(mine))
        path = call.tool.traits.file_in(call.input)
        if path:
            await agent_hooks.works_on(context, unspelled(path))
        return CallOutcome(result)
    except Exception as error:  # noqa: BLE001 - a tool's bug is a result, the model goes on
        _log.exception("tool %s failed", call.name)
        return CallOutcome(calls.error_result(f"{call.name} failed: {type(error).__name__}: {error}"))
    finally:
        heartbeat.cancel()
        for version in filter(None, before):  # now it is known what the command has made of them
            now = await _version(context, version.path)
            if now is not None and (now.before or version.before):
                await _keep_version(context, call.id, replace(version, after=now.before))


async def _version(context: TurnContext, path: str) -> UpcomingChange | None:
    """Return the file at the real path `path` as a change that removes it; None if something else is there."""
    host = context.config.context.host
    try:
        info = await host.stat(path)
        if info is None:
            return UpcomingChange(path, None, 0, ABSENT, ABSENT)
        data = await host.read(path, 0, MAX_BYTES)
    except (OSError, NotAFile):
        return None
    return UpcomingChange(path, data, info.mode, digest_of(data), ABSENT)


async def _ask_beside(context: TurnContext, question: ModelQuestion) -> ReplyListener:
    deps, agent = context.deps, context.agent
    model = context.config.small_model(agent.model) if question.model == SMALL else question.model or agent.model
    body: Json = {"model": model, "max_tokens": _ASIDE_TOKENS, "system": question.system, "stream": True}
    body["messages"] = [{"role": "user", "content": question.text}]
    if question.tools:
        body["tools"] = list(question.tools)
    reply, policy = ReplyListener(), RetryPolicy(deps.limits.max_retries)
    end = await ModelCall(deps.call_settings([to_bytes(dump(body))]), reply, policy).run()
    agent.count(end.head.model, end.usage, model)
    return reply


async def _keep_version(context: TurnContext, tool_use_id: str, change: UpcomingChange) -> str:
    """Put the present version of a file into the file history, durably. Return why it was lost, "" if it is kept."""
    lost = ""
    if change.data is not None:
        history = context.config.context.history
        lost = await in_thread(history.keep, change.data)
    record = FileChangeRecord(tool_use_id, spelled(change.path), change.before, change.after, change.mode, lost)
    context.log.record(record)
    await context.log.commit()
    return lost


async def permission(context: TurnContext, call: ParsedCall) -> ParsedCall:
    """Return the call with its cage and the granted input. Raise CallRefused."""
    can_ask = context.deps.broker.can_ask(CAN_USE_TOOL)
    judge = None if can_ask or call.tool.traits.asks else context.config.judge()
    decision = decide(context.config, call, can_ask=can_ask or judge is not None)
    if decision.behavior is Behavior.ALLOW:
        context.agent.denied_in_a_row = 0
        by = DecidedBy.HOOK if call.hooked.decision == "allow" else DecidedBy.CONFIG
        return replace(call, cage=decision.cage, pinned=decision.pinned, changes=decision.changes, allowed_by=by)
    if decision.behavior is Behavior.DENY:
        raise CallRefused(await _deny_unasked(context, call, decision))
    answer = await agent_hooks.before_question(context, call, decision)
    if answer is not None:
        return await _answered(context, replace(call, allowed_by=DecidedBy.HOOK), decision, answer)
    preview: Preview | None = None
    if can_ask:
        try:
            preview = await call.tool.preview(call.input, context.config.context)
        except ToolRefused as refused:  # it would fail anyway
            raise CallRefused(CallOutcome(refused.result)) from None
        try:
            answer = await _ask(context, call, decision, preview)
        except RequestMoot:
            return await permission(context, call)
    elif judge is not None:
        answer = await ask_tool(judge, call.name, call.input, call.id, calls.call_context(context))
    else:
        raise CallRefused(await _deny_unasked(context, call, decision))
    seen = preview.version if preview is not None else None
    return await _answered(context, replace(call, allowed_by=DecidedBy.PERSON_ALLOWED), decision, answer, seen)


async def _answered(
    context: TurnContext, call: ParsedCall, decision: Decision, answer: ToolPermission, seen: FileVersion | None = None
) -> ParsedCall:
    """Act on the answer of a hook or the person, who has `seen` this version of the file."""
    if not answer.allow:
        text = answer.message or f"The user refused this use of {call.name}."
        by = DecidedBy.HOOK if call.allowed_by is DecidedBy.HOOK else DecidedBy.PERSON_REFUSED
        raise CallRefused(replace(calls.denied(context, call, text, by), ends_turn=answer.interrupt))
    context.agent.denied_in_a_row = 0
    if any(update.get("type") == SET_SANDBOX for update in answer.updates):
        return await _decided_again(context, call, answer)
    call = replace(call, cage=decision.cage)
    try:
        if answer.updated_input is None or answer.updated_input == call.input:
            return replace(call, pinned=decision.pinned, approved=seen)
        return await calls.validate(context, replace(call, input=answer.updated_input))
    finally:  # a changed mode is for what comes after the call
        _apply(context, answer.updates)
        _tell_of_directories(context, answer.updates)


async def _decided_again(context: TurnContext, call: ParsedCall, answer: ToolPermission) -> ParsedCall:
    """Decide again on a call after an answer that has changed the cage, so that it runs in the one that it has now."""
    if answer.updated_input is not None:
        call = await calls.validate(context, replace(call, input=answer.updated_input))
    is_changed = _apply(context, answer.updates)
    by_person = call.allowed_by is not DecidedBy.HOOK and context.deps.broker.can_ask(CAN_USE_TOOL)
    again = decide(context.config, call, can_ask=True)
    if again.behavior is Behavior.ASK and not (is_changed or by_person):  # else it would be answered so for ever
        why = f"No cage makes this needless: {again.reason}"
        raise CallRefused(calls.denied(context, call, why, call.allowed_by))
    return await permission(context, call)


def _apply(context: TurnContext, updates: Sequence[Json]) -> bool:
    """Apply permission updates. Return whether the mode or the cage has changed, which other questions may be about."""
    changed = calls.ModeSwitch(context.config.permissions, context.log).apply(updates)
    if changed:
        context.deps.broker.reconsider()
    return changed


def _tell_of_directories(context: TurnContext, updates: Sequence[Json]) -> None:
    for update in updates:
        for each in update.get("directories") or () if update.get("type") == "addDirectories" else ():
            payload = {"directory": str(each), "source": "permission_update"}
            context.deps.hooks.run_later(DIRECTORY_ADDED, payload, "permission_update")


def decide(config: AgentConfig, call: ParsedCall, *, can_ask: bool) -> Decision:
    tools = config.context
    shell_cwd = tools.shells.directory(tools.host, [tools.cwd, *tools.add_dirs])
    granted = call.hooked.decision == "allow"
    decision = config.permissions.decide(call.tool, call.input, can_ask=can_ask, shell_cwd=shell_cwd, granted=granted)
    if call.hooked.decision == "ask" and decision.behavior is Behavior.ALLOW:
        reason = call.hooked.reason or "A hook wants a question before this."
        return replace(decision, behavior=Behavior.ASK, reason=reason, reason_type="hook")
    return decision


async def _deny_unasked(context: TurnContext, call: ParsedCall, decision: Decision) -> CallOutcome:
    if decision.behavior is Behavior.DENY:
        text = f"Permission to use {call.name} was denied: {decision.reason}"
    else:
        text = call.tool.declaration.if_nobody_can_be_asked or headless_denial(decision, call.name)
    context.log.message(agent_messages.permission_denied(call.name, call.id, text, decision))
    if (await agent_hooks.run_for_call(context, PERMISSION_DENIED, call, reason=text)).own.get("retry"):
        text += "\nA hook says that you may try this call again."
    return calls.denied(context, call, text, DecidedBy.CONFIG)


async def _ask(context: TurnContext, call: ParsedCall, decision: Decision, preview: Preview | None) -> ToolPermission:
    change = preview.public if preview is not None else None
    question = agent_messages.tool_approval(call.tool.traits, call.input, call.id, decision, change)
    if context.log.agent_id:
        question = replace(question, agent_id=context.log.agent_id, agent=context.config.label)

    def is_moot() -> bool:
        return decide(context.config, call, can_ask=True).behavior is Behavior.ALLOW

    request = Request(CAN_USE_TOOL, question, about=call.name, agent_id=context.log.agent_id, is_moot=is_moot)
    try:
        return await context.deps.broker.request(request)
    except RequestFailed as error:
        _log.exception("asking for %s failed", call.name)
        raise CallRefused(CallOutcome(calls.error_result(f"Tool permission request failed: Error: {error}"))) from None


async def ask_tool(tool: Tool, name: str, tool_input: Json, tool_use_id: str, context: ToolContext) -> ToolPermission:
    """Return what `tool` answers about a call. Anything that is not a clear yes is a no."""
    question = {"tool_name": name, "input": tool_input, "tool_use_id": tool_use_id}
    mine = replace(context.call, tool_use_id=tool_use_id, for_person=True)
    result = await tool.call(question, context.for_call(mine))
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
