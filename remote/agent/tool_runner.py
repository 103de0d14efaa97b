"""One tool call from its block to its result: schema, validation, permission, start on record, run, result on record."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Any, Callable

from ccb.tunnel.wire.records import MessageRecord, ToolStartRecord

from ..permissions.decision import Behavior, Decision
from ..tools.contract import Tool, ToolResult
from . import messages
from .conversation import tool_result_message
from .deps import AgentDeps
from .executor import ToolCall
from .schema import issues

Json = dict[str, Any]

_log = logging.getLogger(__name__)

_DENIALS_IN_A_ROW = 3
_DENIALS_IN_ALL = 20
DENIAL_FEEDBACK = (
    "Several of your tool calls in this session were refused. Do not try the same action in another form: "
    "say what you need it for, or go on without it."
)


class DenialCounter:
    """Notices a model that tries a refused action again and again, in variants."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._in_all = 0
        self._due = False

    def denied(self) -> None:
        self._in_a_row += 1
        self._in_all += 1
        if self._in_a_row >= _DENIALS_IN_A_ROW or self._in_all >= _DENIALS_IN_ALL:
            self._due, self._in_a_row, self._in_all = True, 0, 0

    def succeeded(self) -> None:
        self._in_a_row = 0

    def take_feedback(self) -> bool:
        """True once after each time a limit was reached."""
        due, self._due = self._due, False
        return due


class _Refused(Exception):
    """The call is not run; `result` says why."""

    def __init__(self, result: ToolResult) -> None:
        super().__init__()
        self.result = result


class CallRunner:
    """Runs calls of one turn. `record` emits a public message and adds it to the conversation; `interrupt` ends the turn."""

    def __init__(
        self,
        deps: AgentDeps,
        record: Callable[[Json], None],
        interrupt: Callable[[], None],
        denials: list[Json],
        counter: DenialCounter,
    ) -> None:
        self._deps = deps
        self._record = record
        self._interrupt = interrupt
        self._denials = denials
        self._counter = counter
        self.started: set[str] = set()
        self.printed: dict[str, str] = {}  # what calls that were stopped had printed, by their ids

    def is_read_only(self, call: ToolCall) -> bool:
        """Whether the call may run beside others. A call that will be refused for its input may."""
        if call.tool is None or call.broken or issues(call.input, call.tool.input_schema):
            return True
        try:
            return call.tool.is_read_only(call.input)
        except Exception:  # noqa: BLE001 - a tool's bug makes it the careful kind
            _log.exception("is_read_only of %s failed", call.name)
            return False

    async def run(self, call: ToolCall) -> None:
        """Bring the call to its result and put it on record. A failing tool is a result; other exceptions are ours."""
        try:
            result = await self._result(call)
        except _Refused as refused:
            result = refused.result
        self._record(
            tool_result_message(call.id, result.content, is_error=result.is_error, structured=result.structured)
        )
        await self._deps.emitter.commit()

    async def _result(self, call: ToolCall) -> ToolResult:
        if call.tool is None:
            raise _Refused(_tool_use_error(f"Error: No such tool available: {call.name}"))
        if call.broken:
            raise _Refused(_tool_use_error(f"InputValidationError: {call.name}: {call.broken}"))
        tool, tool_input = call.tool, call.input
        self._check(tool, tool_input)
        granted = await self._permit(call, tool)
        if granted is not tool_input:
            self._check(tool, granted)
        self.started.add(call.id)
        self._deps.emitter.emit(ToolStartRecord(call.id, call.name))
        await self._deps.emitter.commit()
        context = dataclasses.replace(
            self._deps.context,
            tool_use_id=call.id,
            left_out=tuple(self._deps.permissions.left_out(call.name)),
            progress=lambda update: self._deps.emitter.progress(
                call.id, messages.tool_progress(call.name, call.id, update)
            ),
            stopped=lambda printed: self.printed.update({call.id: printed}),
        )
        beating = asyncio.ensure_future(self._beat(call))
        try:
            return await tool.run(granted, context)
        except Exception as error:  # noqa: BLE001 - a tool's bug is a result, the model goes on
            _log.exception("tool %s failed", call.name)
            return ToolResult(f"{call.name} failed: {type(error).__name__}: {error}", is_error=True)
        finally:
            beating.cancel()

    async def _beat(self, call: ToolCall) -> None:
        """Say every now and then that the tool still runs, for those who would take silence for a hang."""
        elapsed = 0.0
        while True:
            await asyncio.sleep(self._deps.heartbeat_s)
            elapsed += self._deps.heartbeat_s
            self._deps.emitter.progress(call.id + ":heartbeat", messages.heartbeat(call.name, call.id, elapsed))

    def _check(self, tool: Tool, tool_input: Json) -> None:
        wrong = issues(tool_input, tool.input_schema)
        if wrong:
            plural = "issue" if len(wrong) == 1 else "issues"
            text = f"{tool.name} was called with a wrong input ({plural}):\n" + "\n".join(wrong)
            raise _Refused(_tool_use_error(f"InputValidationError: {text}"))
        try:
            reason = tool.validate(tool_input, self._deps.context)
        except Exception as error:  # noqa: BLE001 - a failed check refuses
            _log.exception("validate of %s failed", tool.name)
            reason = f"the input could not be checked: {type(error).__name__}: {error}"
        if reason is not None:
            raise _Refused(_tool_use_error(reason))

    async def _permit(self, call: ToolCall, tool: Tool) -> Json:
        """The input to run with. Raises _Refused for a denial, and for any failure of the check itself."""
        try:
            decision = self._deps.permissions.decide(tool, call.input)
        except Exception as error:  # noqa: BLE001 - a failed check refuses
            _log.exception("the permission check of %s failed", call.name)
            raise _Refused(_error(f"The permission check failed ({error}); {call.name} was not run.")) from None
        if decision.behavior is Behavior.ALLOW:
            self._counter.succeeded()
            return call.input
        if decision.behavior is Behavior.DENY or not self._deps.asker.can_ask:
            self._deny_unasked(call, decision)
        return await self._ask(call, decision)

    def _deny_unasked(self, call: ToolCall, decision: Decision) -> None:
        if decision.behavior is Behavior.DENY:
            text = f"Permission to use {call.name} was denied: {decision.reason}"
        else:
            text = self._deps.denial_text(decision, call.name)
        self._deps.emitter.emit(MessageRecord(messages.permission_denied(call.name, call.id, text, decision)))
        raise self._denied(call, text)

    async def _ask(self, call: ToolCall, decision: Decision) -> Json:
        request = messages.can_use_tool(call.name, call.input, call.id, decision)
        try:
            answer = await self._deps.asker.ask(request)
        except Exception as error:  # noqa: BLE001 - a failed question refuses
            _log.exception("asking for %s failed", call.name)
            raise _Refused(_error(f"Tool permission request failed: Error: {error}")) from None
        if not answer.allow:
            refusal = self._denied(call, answer.message or f"The user refused this use of {call.name}.")
            if answer.interrupt:
                self._interrupt()
            raise refusal
        if answer.updates:
            mode = self._deps.permissions.mode
            self._deps.permissions.apply(answer.updates)
            if self._deps.permissions.mode != mode:
                self._deps.emitter.emit(MessageRecord(messages.status(None, self._deps.permissions.mode)))
        self._counter.succeeded()
        return call.input if answer.updated_input is None else answer.updated_input

    def _denied(self, call: ToolCall, text: str) -> _Refused:
        self._denials.append({"tool_name": call.name, "tool_use_id": call.id, "tool_input": call.input})
        self._counter.denied()
        return _Refused(_error(text))


def _error(text: str) -> ToolResult:
    return ToolResult(text, is_error=True)


def _tool_use_error(text: str) -> ToolResult:
    return _error(f"<tool_use_error>{text}</tool_use_error>")
