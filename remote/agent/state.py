"""Why a turn goes on and why it ends, as closed sets, and the state one iteration hands to the next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Terminal(Enum):
    """`terminal_reason` of a result. API_ERROR is a model call that failed for good; MODEL_ERROR a failure of our own;
    STORAGE_FULL a host without room for the journal."""

    COMPLETED = "completed"
    API_ERROR = "api_error"
    MODEL_ERROR = "model_error"
    STORAGE_FULL = "storage_full"
    PROMPT_TOO_LONG = "prompt_too_long"
    ABORTED_STREAMING = "aborted_streaming"
    ABORTED_TOOLS = "aborted_tools"
    MAX_TURNS = "max_turns"


_IN_EXECUTION = (
    Terminal.ABORTED_STREAMING,
    Terminal.ABORTED_TOOLS,
    Terminal.MODEL_ERROR,
    Terminal.STORAGE_FULL,
)


class Transition(Enum):
    """Why another model call is made."""

    FIRST = "first"
    NEXT_TURN = "next_turn"
    MAX_OUTPUT_TOKENS_ESCALATE = "max_output_tokens_escalate"
    MAX_OUTPUT_TOKENS_RECOVERY = "max_output_tokens_recovery"


@dataclass(frozen=True)
class State:
    """`calls` counts model calls that max_turns counts: a repeated or continued answer belongs to the call before it."""

    transition: Transition = Transition.FIRST
    calls: int = 1
    escalated: bool = False
    recoveries: int = 0

    def next_turn(self) -> State:
        return State(Transition.NEXT_TURN, self.calls + 1)

    def escalate(self) -> State:
        return State(Transition.MAX_OUTPUT_TOKENS_ESCALATE, self.calls, escalated=True)

    def recover(self) -> State:
        return State(Transition.MAX_OUTPUT_TOKENS_RECOVERY, self.calls, True, self.recoveries + 1)


@dataclass(frozen=True)
class Ending:
    """How a turn ended: `text` is the result or the error prose, `errors` what `error_*` results list."""

    terminal: Terminal
    text: str = ""
    errors: tuple[str, ...] = ()
    api_error_status: int | None = None

    @property
    def is_error(self) -> bool:
        return self.terminal is not Terminal.COMPLETED

    @property
    def subtype(self) -> str:
        if self.terminal in _IN_EXECUTION:
            return "error_during_execution"
        return "error_max_turns" if self.terminal is Terminal.MAX_TURNS else "success"
