"""The values that a turn works with: prompts, the state of its loop, how it ends, and the signal to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any, TypeVar

from ccb.tunnel.wire.client_requests import SHELL_COMMAND
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.messages import UserMessage
from ccb.tunnel.wire.model_facts import ModelFacts, ModelTable

from ..model.model_request import RequestPrefix
from ..model.token_counts import text_tokens
from ..tools.tool_contract import Tool
from .conversation import Conversation
from .token_usage import Ledger

Json = dict[str, Any]


_MAX_IN_A_ROW = 3
_MAX_IN_ALL = 20

DENIAL_FEEDBACK = (
    "Several of your tool calls in this session were refused. Do not try the same action in another form: "
    "say what you need it for, or go on without it."
)
"""The note that the model gets each time a limit is reached."""


class DenialCounter:
    """Counts the denied tool calls of one agent over all its turns: a model may try a refused action again in
    variants."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._in_all = 0

    def denied(self) -> bool:
        """Count a denial. Return True when a limit is reached and feedback is due; the count then starts anew."""
        self._in_a_row += 1
        self._in_all += 1
        if self._in_a_row < _MAX_IN_A_ROW and self._in_all < _MAX_IN_ALL:
            return False
        self._in_a_row = self._in_all = 0
        return True

    def permitted(self) -> None:
        """Note a permitted call, which ends the series of consecutive denials."""
        self._in_a_row = 0


@dataclass
class AgentState:
    """What an agent keeps from one turn to the next. `models` is what the session knows of models. `tools` are those
    the model may call, `listed` those that requests declare. `prefix` opens every request: the first turn makes it, and
    a later one only when the prompts or the listed tools have changed. `feedback_due`: the next tool results carry a
    note to the model about its many denials."""

    conversation: Conversation
    ledger: Ledger
    models: ModelTable
    model: str
    tools: dict[str, Tool]
    listed: tuple[Tool, ...]
    denials: DenialCounter = field(default_factory=DenialCounter)
    feedback_due: bool = False
    prefix: RequestPrefix | None = None

    @property
    def prefix_tokens(self) -> int:
        """The estimated size of what goes before the conversation."""
        return text_tokens(len(self.prefix.encoded)) if self.prefix is not None else 0

    @property
    def facts(self) -> ModelFacts:
        """What is known of the present model."""
        return self.models.facts(self.model)

    def count(self, answered: str, usage: Mapping[str, Any], asked: str = "") -> None:
        """Count an answer. `answered` is the model as it names itself, `asked` the one that was asked, "" for the
        present one."""
        model = self.models.paid_as(answered, asked or self.model)
        self.ledger.add(model, self.models.facts(model), usage)

    @property
    def tokens(self) -> int:
        """The size of the next request, without what it asks for."""
        return self.conversation.size.tokens(self.prefix_tokens)


class EndReason(Enum):
    """The `terminal_reason` of a result. API_ERROR: a model call failed for good. MODEL_ERROR: the worker itself
    failed. STORAGE_FULL: the host has no room for the journal. HOOK_STOPPED: a hook said that the agent must not go
    on, STOP_HOOK_PREVENTED: a Stop hook did. SETUP_FAILED: the session
    is to work as an agent that does not exist, or that lacks an MCP server."""

    COMPLETED = "completed"
    API_ERROR = "api_error"
    MODEL_ERROR = "model_error"
    STORAGE_FULL = "storage_full"
    PROMPT_TOO_LONG = "prompt_too_long"
    ABORTED_STREAMING = "aborted_streaming"
    ABORTED_TOOLS = "aborted_tools"
    MAX_TURNS = "max_turns"
    HOOK_STOPPED = "hook_stopped"
    STOP_HOOK_PREVENTED = "stop_hook_prevented"
    BUDGET_EXHAUSTED = "budget_exhausted"
    SETUP_FAILED = "turn_setup_failed"
    NO_STRUCTURED_OUTPUT = "structured_output_retries"


_IN_EXECUTION = (
    EndReason.ABORTED_STREAMING,
    EndReason.ABORTED_TOOLS,
    EndReason.MODEL_ERROR,
    EndReason.STORAGE_FULL,
    EndReason.SETUP_FAILED,
)


_LIMITS = {
    EndReason.MAX_TURNS: "error_max_turns",
    EndReason.BUDGET_EXHAUSTED: "error_max_budget_usd",
    EndReason.NO_STRUCTURED_OUTPUT: "error_max_structured_output_retries",
}


class CallReason(Enum):
    """Why the turn makes another model call."""

    FIRST = "first"
    NEXT_TURN = "next_turn"
    MAX_OUTPUT_TOKENS_ESCALATE = "max_output_tokens_escalate"
    MAX_OUTPUT_TOKENS_RECOVERY = "max_output_tokens_recovery"
    COMPACTED = "compacted"
    STOP_HOOK_BLOCKING = "stop_hook_blocking"


@dataclass(frozen=True)
class LoopState:
    """The state that one model call of a turn passes to the next. `calls` is the number that `max_turns` limits; a call
    that repeats or continues an answer is not counted separately. `stop_blocks` counts how often Stop hooks have let
    the turn go on."""

    transition: CallReason = CallReason.FIRST
    calls: int = 1
    escalated: bool = False
    recoveries: int = 0
    stop_blocks: int = 0

    def next_turn(self) -> LoopState:
        return LoopState(CallReason.NEXT_TURN, self.calls + 1, stop_blocks=self.stop_blocks)

    def stop_blocked(self) -> LoopState:
        return LoopState(CallReason.STOP_HOOK_BLOCKING, self.calls + 1, stop_blocks=self.stop_blocks + 1)

    def escalate(self) -> LoopState:
        return replace(self, transition=CallReason.MAX_OUTPUT_TOKENS_ESCALATE, escalated=True, recoveries=0)

    def recover(self) -> LoopState:
        transition, recoveries = CallReason.MAX_OUTPUT_TOKENS_RECOVERY, self.recoveries + 1
        return replace(self, transition=transition, escalated=True, recoveries=recoveries)

    def compacted(self) -> LoopState:
        return LoopState(CallReason.COMPACTED, self.calls, stop_blocks=self.stop_blocks)


@dataclass(frozen=True)
class TurnEnding:
    """How a turn ended. `text` is the answer or the error for the person; `errors` is what results of subtype `error_…`
    list; `structured` is the value that the client's schema demands."""

    terminal: EndReason
    text: str = ""
    errors: tuple[str, ...] = ()
    api_error_status: int | None = None
    structured: dict[str, Any] | None = None

    @property
    def is_error(self) -> bool:
        return self.terminal not in (EndReason.COMPLETED, EndReason.HOOK_STOPPED, EndReason.STOP_HOOK_PREVENTED)

    @property
    def is_empty(self) -> bool:
        """Whether the model has ended the turn without a word, perhaps after it has thought."""
        return self.terminal is EndReason.COMPLETED and not self.text.strip() and self.structured is None

    @property
    def subtype(self) -> str:
        if self.terminal in _IN_EXECUTION:
            return "error_during_execution"
        return _LIMITS.get(self.terminal, "success")


T = TypeVar("T")

_CANCEL_GRACE = 5.0


class Interrupted(Exception):
    """The person interrupted the turn, or ended it by denying a call."""


class StopSignal:
    """Is set once, when the turn is to end."""

    def __init__(self) -> None:
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_set(self) -> bool:
        return self._stop.done()

    def set(self) -> None:
        """End the turn as soon as possible. Idempotent."""
        if not self._stop.done():
            self._stop.set_result(None)

    async def unless_set(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. When the turn is stopped before that, cancel `work`, wait for its end, and raise
        Interrupted."""
        task = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {task, self._stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Interrupted
            if task.cancelled():  # cancelled by someone else; raising CancelledError would lose the result of the turn
                raise RuntimeError("a part of the turn was cancelled from outside")
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_CANCEL_GRACE)
            if task.done() and not task.cancelled():
                task.exception()


@dataclass(frozen=True)
class Prompt:
    """A prompt of the person, as content blocks, or a notice of the worker. `input_id` is the id of the journalled
    input or notice, so that the journal holds its text once; "" when there is none. `origin` is the public origin of a
    notice; None for a prompt of the person. `verbatim`: no command and no name of a file is looked for in it. `silent`:
    the model reads it with the next prompt. `shell`: it is a command line that the person runs (`! make`)."""

    blocks: Sequence[Json]
    input_id: str = ""
    origin: Json | None = None
    verbatim: bool = False
    silent: bool = False
    shell: bool = False

    @staticmethod
    def from_input(input_id: str, line: UserMessage) -> Prompt:
        """Return the prompt in a public user message of a client."""
        shell = line.body.get(SHELL_COMMAND) is True
        silent = shell or line.body.get("shouldQuery") is False
        return Prompt(line.blocks, input_id, None, silent or line.body.get("client_composed") is True, silent, shell)


def origin_of(prompts: Sequence[Prompt]) -> Json | None:
    """Return the public origin of a turn with these prompts: None if one of them is the person's."""
    return prompts[0].origin if prompts and all(prompt.origin for prompt in prompts) else None
