"""A tool call on its way through the pipeline, and how it ended."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

from ...hooks.outcome import NOTHING, HookOutcome
from ...sandbox.rules import CageRules
from ...tools.contract import CallContext, FileVersion, Tool, ToolContext, ToolResult
from ..deps import AgentConfig, AgentDeps
from ..recorder import Recorder
from ..state import AgentState, DenialCounter
from .mode_switch import ModeSwitch

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


def lent(context: PipelineContext) -> ToolContext:
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
