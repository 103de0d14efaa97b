"""A tool call, its outcome, and the checks of its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from enum import Enum

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json

from ..hooks.hook_outcome import NOTHING, HookOutcome
from ..permissions.engine import PermissionEngine
from ..permissions.modes import PLAN
from ..sandbox.cage_rules import CageRules
from ..tools.input_schema import issues, whole_numbers
from ..tools.tool_contract import CallContext, FileVersion, Tool, ToolContext, ToolResult
from . import agent_messages
from .agent_config import AgentConfig, AgentDeps
from .agent_histories import AgentLog
from .turn_state import AgentState

_NOT_WANTED = "The user doesn't want to proceed with this tool use."
_SET_MODE = {"type": "setMode", "destination": "session"}
STOPPED = f"{_NOT_WANTED} It was stopped while it ran: what it had done until then stays done. Wait for the user."
NOT_RUN = f"{_NOT_WANTED} It was not run. Wait for the user."


class DecidedBy(Enum):
    CONFIG = "config"
    HOOK = "hook"
    PERSON_ALLOWED = "user_temporary"
    PERSON_REFUSED = "user_reject"


@dataclass(frozen=True)
class CallOutcome:
    """How a tool call ended. `denial` is its entry in `permission_denials`. `ends_turn`: the person refused the call
    and the rest of the turn. `stop_reason`: a hook ends the turn."""

    result: ToolResult
    denial: Json | None = None
    ends_turn: bool = False
    stop_reason: str | None = None
    decided_by: DecidedBy | None = None


class CallRefused(Exception):
    def __init__(self, outcome: CallOutcome) -> None:
        super().__init__()
        self.outcome = outcome


@dataclass(frozen=True)
class TurnContext:
    config: AgentConfig
    deps: AgentDeps
    log: AgentLog
    agent: AgentState
    printed: dict[str, str] = field(default_factory=dict)  # by the calls that have started, when stopped


@dataclass(frozen=True)
class ToolCall:
    """One tool_use block of the model. `broken` says why the input is not a JSON object."""

    id: str
    name: str
    input: Json
    tool: Tool | None
    broken: str = ""


@dataclass(frozen=True)
class ParsedCall:
    """A call of a known tool. `permission` sets `cage`, `pinned`, the real path that was decided on, and `changes`, the
    real paths that a command may change; `approved` is the version of a file that the person was shown; `hooked` what
    PreToolUse hooks decided."""

    id: str
    tool: Tool
    input: Json
    cage: CageRules | None = None
    pinned: str = ""
    changes: tuple[str, ...] = ()
    approved: FileVersion | None = None
    hooked: HookOutcome = NOTHING
    allowed_by: DecidedBy = DecidedBy.CONFIG

    @property
    def name(self) -> str:
        return self.tool.name


def call_context(context: TurnContext) -> ToolContext:
    modes = ModeSwitch(context.config.permissions, context.log)
    return context.config.context.for_call(CallContext(modes=modes))


def denied(context: TurnContext, call: ParsedCall, text: str, by: DecidedBy) -> CallOutcome:
    denial = {"tool_name": call.name, "tool_use_id": call.id, "tool_input": call.input}
    is_answer = call.tool.traits.asks  # a question that the person declines is no action that the model may not take
    if not is_answer:
        context.agent.denied()
    return CallOutcome(error_result(text), denial=denial, decided_by=by)


def error_result(text: str) -> ToolResult:
    return ToolResult(text, is_error=True)


def tool_use_error(text: str) -> CallOutcome:
    return CallOutcome(error_result(f"<tool_use_error>{text}</tool_use_error>"))


class ModeSwitch:
    def __init__(self, permissions: PermissionEngine, log: AgentLog) -> None:
        self._permissions = permissions
        self._log = log

    @property
    def mode(self) -> str:
        return self._permissions.mode

    def enter_plan(self) -> None:
        self.apply([{**_SET_MODE, "mode": PLAN}])

    def leave_plan(self) -> None:
        if self.mode == PLAN:
            self.apply([{**_SET_MODE, "mode": self._permissions.mode_before_plan}])

    def grant(self, rules: Sequence[str]) -> None:
        if not self._log.agent_id:  # a sub-agent is never freer than the session
            self._permissions.lend(rules, for_turn=True)

    def apply(self, updates: Sequence[Json]) -> bool:
        """Apply permission updates. Return whether they have changed the mode or the cage."""
        permissions = self._permissions
        before = permissions.mode, permissions.cage_in_force
        permissions.apply(updates)
        changed = (permissions.mode, permissions.cage_in_force) != before
        if changed:
            self._log.message(agent_messages.mode_message(permissions))
        return changed


async def validate(context: TurnContext, call: ParsedCall) -> ParsedCall:
    schema = call.tool.checked_schema
    call = replace(call, input=whole_numbers(call.input, schema))
    wrong = issues(call.input, schema)
    if wrong:
        plural = "issue" if len(wrong) == 1 else "issues"
        text = f"{call.name} was called with a wrong input ({plural}):\n" + "\n".join(wrong)
        raise CallRefused(tool_use_error(f"InputValidationError: {text}"))
    reason = call.tool.validate(call.input, call_context(context))
    if reason is not None:
        raise CallRefused(tool_use_error(reason))
    return call
