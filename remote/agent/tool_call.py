"""A call, its outcome, its schedule."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any, Callable

from ccb.tunnel.wire.dataclass import dataclass

from ..hooks.hook_outcome import NOTHING, HookOutcome
from ..permissions.engine import PermissionEngine
from ..permissions.modes import PLAN
from ..sandbox.cage_rules import CageRules
from ..tools.input_schema import issues, whole_numbers
from ..tools.tool_contract import CallContext, FileVersion, Tool, ToolContext, ToolResult
from . import agent_messages
from .agent_config import AgentConfig, AgentDeps
from .agent_log import Recorder
from .turn_state import AgentState, DenialCounter

Json = dict[str, Any]

_NOT_WANTED = "The user doesn't want to proceed with this tool use."
_STOPPED = f"{_NOT_WANTED} It was stopped while it ran: what it had done until then stays done. Wait for the user."
NOT_RUN = f"{_NOT_WANTED} It was not run. Wait for the user."
"""The result of a call that was open when the turn ended, and had not started."""


class DecidedBy(Enum):
    """Who decided whether a call may run: rules and modes, a hook, or the person, with a yes or a no."""

    CONFIG = "config"
    HOOK = "hook"
    PERSON_ALLOWED = "user_temporary"
    PERSON_REFUSED = "user_reject"


@dataclass(frozen=True)
class CallOutcome:
    """How a tool call ended. `denial` is its entry in the `permission_denials` of the turn's result, None unless it was
    denied. `ends_turn`: the person refused the call and the rest of the turn with it. `feedback_due`: the model gets a
    note (DENIAL_FEEDBACK), because so many of its calls were denied. `stop_reason`: a hook ends the turn after this
    call, for this reason. `decided_by`: see `DecidedBy`, None if the call got no decision."""

    result: ToolResult
    denial: Json | None = None
    ends_turn: bool = False
    feedback_due: bool = False
    stop_reason: str | None = None
    decided_by: DecidedBy | None = None


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
    PreToolUse hooks decided, `allowed_by` who allowed the call."""

    id: str
    tool: Tool
    input: Json
    cage: CageRules | None = None
    pinned: str = ""
    approved: FileVersion | None = None
    hooked: HookOutcome = NOTHING
    allowed_by: DecidedBy = DecidedBy.CONFIG

    @property
    def name(self) -> str:
        return self.tool.name


def call_context(context: PipelineContext) -> ToolContext:
    """Return the resources that a tool gets before its call runs."""
    return context.config.context.for_call(CallContext(modes=mode_switch(context)))


def mode_switch(context: PipelineContext) -> ModeSwitch:
    return ModeSwitch(context.config.permissions, context.recorder)


def denied(context: PipelineContext, call: ParsedCall, text: str, by: DecidedBy) -> CallOutcome:
    denial = {"tool_name": call.name, "tool_use_id": call.id, "tool_input": call.input}
    is_answer = call.tool.traits.asks  # a question that the person declines is no action that the model may not take
    feedback_due = not is_answer and context.denials.denied()
    return CallOutcome(error_result(text), denial=denial, feedback_due=feedback_due, decided_by=by)


def error_result(text: str) -> ToolResult:
    return ToolResult(text, is_error=True)


def tool_use_error(text: str) -> CallOutcome:
    return CallOutcome(error_result(f"<tool_use_error>{text}</tool_use_error>"))


_log = logging.getLogger(__name__)

MAX_AT_ONCE = 10
"""Read-only calls that may run at the same time."""

_CANCEL_GRACE = 5.0  # seconds a cancelled tool has to clean up before the turn goes on without it


@dataclass(frozen=True)
class ToolCall:
    """One tool_use block of the model. `tool` is None when there is no tool of that name. `broken` says why the input
    is not a JSON object, "" when it is one."""

    id: str
    name: str
    input: Json
    tool: Tool | None
    broken: str = ""


@dataclass(eq=False)
class _Entry:
    call: ToolCall
    parallel: bool
    task: asyncio.Task[None] | None = field(default=None)


class ToolExecutor:
    """Starts tool calls in the order of the model. A call that may run in parallel starts when no earlier call that
    must run alone is left, up to MAX_AT_ONCE of them. A call that must run alone starts when every call before it is
    done, and no later one starts until it is done itself."""

    def __init__(
        self,
        run: Callable[[ToolCall], Awaitable[None]],
        may_run_in_parallel: Callable[[ToolCall], bool],
        max_at_once: int = MAX_AT_ONCE,
    ) -> None:
        self._run = run
        self._may_run_in_parallel = may_run_in_parallel
        self._max = max_at_once
        self._entries: list[_Entry] = []  # not finished, in the order of the model
        self._error: BaseException | None = None
        self._stopped = False
        self._changed = asyncio.Event()

    def submit(self, call: ToolCall) -> None:
        """Take a call. It starts at once, or when the calls before it allow it."""
        self._entries.append(_Entry(call, self._may_run_in_parallel(call)))
        self._pump()

    async def drain(self) -> None:
        """Return when all calls are done. Raise what a call raised: that is a fault of the worker, not of a tool."""
        while self._entries and self._error is None:
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    def halt(self) -> None:
        """Start no more calls. Running calls go on until `cancel`."""
        self._stopped = True

    async def cancel(self) -> None:
        """Cancel the running calls, and drop the waiting ones."""
        self.halt()
        tasks = {entry.task for entry in self._entries if entry.task is not None}
        self._entries = [entry for entry in self._entries if entry.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            _, stubborn = await asyncio.wait(tasks, timeout=_CANCEL_GRACE)
            if stubborn:
                _log.error("%d cancelled tool calls have not ended in %s s", len(stubborn), _CANCEL_GRACE)

    def _pump(self) -> None:
        if self._stopped or self._error is not None:
            return
        running = sum(1 for entry in self._entries if entry.task is not None)
        for position, entry in enumerate(self._entries):
            if entry.task is None:
                if running >= self._max or (position and not entry.parallel):
                    return
                entry.task = asyncio.ensure_future(self._call(entry))
                running += 1
            if not entry.parallel:
                return

    async def _call(self, entry: _Entry) -> None:
        try:
            await self._run(entry.call)
        except Exception as error:  # noqa: BLE001 - top of the task: the turn gets it from drain()
            self._error = error
        finally:
            if entry in self._entries:
                self._entries.remove(entry)
            self._changed.set()
            self._pump()


class ModeSwitch:
    """Changes the mode of `permissions`. See `ccb.remote.tools.tool_contract.Modes`."""

    def __init__(self, permissions: PermissionEngine, recorder: Recorder) -> None:
        self._permissions = permissions
        self._recorder = recorder

    @property
    def mode(self) -> str:
        return self._permissions.mode

    def enter_plan(self) -> None:
        self._apply_mode(PLAN)

    def leave_plan(self) -> None:
        if self.mode == PLAN:
            self._apply_mode(self._permissions.mode_before_plan)

    def grant(self, rules: Sequence[str]) -> None:
        if not self._recorder.agent_id:  # a sub-agent is never freer than the session
            self._permissions.lend(rules, for_turn=True)

    def apply(self, updates: Sequence[Json]) -> None:
        """Apply the permission updates that came with an answer."""
        permissions, mode = self._permissions, self.mode
        permissions.apply(updates)
        if permissions.mode != mode:
            self._recorder.message(agent_messages.status_message(None, permissions.mode, permissions.cage_in_force))

    def _apply_mode(self, mode: str) -> None:
        self.apply([{"type": "setMode", "mode": mode, "destination": "session"}])


def parse(call: ToolCall) -> ParsedCall:
    """Refuse a call of an unknown tool, and an input that is not a JSON object."""
    if call.tool is None:
        raise CallRefused(tool_use_error(f"Error: No such tool available: {call.name}"))
    if call.broken:
        raise CallRefused(tool_use_error(f"InputValidationError: {call.name}: {call.broken}"))
    return ParsedCall(call.id, call.tool, call.input)


async def validate(context: PipelineContext, call: ParsedCall) -> ParsedCall:
    """Refuse an input that does not fit the tool's schema, or that the tool itself rejects."""
    schema = call.tool.checked_schema
    call = replace(call, input=whole_numbers(call.input, schema))
    wrong = issues(call.input, schema)
    if wrong:
        plural = "issue" if len(wrong) == 1 else "issues"
        text = f"{call.name} was called with a wrong input ({plural}):\n" + "\n".join(wrong)
        raise CallRefused(tool_use_error(f"InputValidationError: {text}"))
    try:
        reason = call.tool.validate(call.input, call_context(context))
    except Exception as error:  # noqa: BLE001 - a failed check refuses
        _log.exception("validate of %s failed", call.name)
        reason = f"the input could not be checked: {type(error).__name__}: {error}"
    if reason is not None:
        raise CallRefused(tool_use_error(reason))
    return call
