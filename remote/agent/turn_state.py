"""The values that a turn works with: prompts, the state of its loop, how it ends, and the signal to stop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

from ccb.tunnel.wire.client_requests import SHELL_COMMAND
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import ModelRecord
from ccb.tunnel.wire.messages import UserMessage
from ccb.tunnel.wire.model_facts import ModelFacts, ModelTable
from ccb.tunnel.wire.tool_traits import Effect, ToolTraits

from ..model.model_request import RequestPrefix, text_tokens
from ..permissions.modes import DEFAULT
from ..tools.tool_contract import Tool, ToolContext, ToolResult, declared
from .agent_histories import AgentLog, Ledger
from .conversation import Conversation

_MAX_IN_A_ROW = 3
_MAX_IN_ALL = 20

DENIAL_FEEDBACK = (
    "Several of your tool calls in this session were refused. Do not try the same action in another form: "
    "say what you need it for, or go on without it."
)


@dataclass
class AgentState:
    """What an agent keeps between turns: `tools` the model may call, `listed` those that requests declare, `prefix`
    what opens each request. A model may try a refused action again in variants: denials are counted over all turns."""

    conversation: Conversation
    ledger: Ledger
    models: ModelTable
    model: str
    tools: dict[str, Tool]
    listed: tuple[Tool, ...]
    denied_in_a_row: int = 0
    denied_in_all: int = 0
    feedback_due: bool = False
    prefix: RequestPrefix | None = None

    def denied(self) -> None:
        self.denied_in_a_row += 1
        self.denied_in_all += 1
        if self.denied_in_a_row >= _MAX_IN_A_ROW or self.denied_in_all >= _MAX_IN_ALL:
            self.denied_in_a_row = self.denied_in_all = 0
            self.feedback_due = True

    def use_model(self, model: str, log: AgentLog) -> None:
        if model != self.model:
            self.model = model
            log.record(ModelRecord(model))

    @property
    def prefix_tokens(self) -> int:
        return text_tokens(len(self.prefix.encoded)) if self.prefix is not None else 0

    @property
    def facts(self) -> ModelFacts:
        return self.models.facts(self.model)

    def count(self, answered: str, usage: Mapping[str, Any], asked: str = "") -> None:
        """Count an answer of `answered`, as the model names itself, for a request to `asked` ("": the present one)."""
        model = self.models.paid_as(answered, asked or self.model)
        self.ledger.add(model, self.models.facts(model), usage)

    @property
    def tokens(self) -> int:
        return self.conversation.size.tokens(self.prefix_tokens)


class EndReason(Enum):
    """The `terminal_reason` of a result. MODEL_ERROR: the worker itself failed. SETUP_FAILED: the agent's role or an
    MCP server of it is missing."""

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


_SUBTYPES = {
    **dict.fromkeys((EndReason.ABORTED_STREAMING, EndReason.ABORTED_TOOLS), "error_during_execution"),
    **dict.fromkeys((EndReason.MODEL_ERROR, EndReason.STORAGE_FULL, EndReason.SETUP_FAILED), "error_during_execution"),
    EndReason.MAX_TURNS: "error_max_turns",
    EndReason.BUDGET_EXHAUSTED: "error_max_budget_usd",
    EndReason.NO_STRUCTURED_OUTPUT: "error_max_structured_output_retries",
}


@dataclass(frozen=True)
class LoopState:
    """What one model call of a turn passes to the next. `max_turns` limits `calls`; `stop_blocks`: how often Stop hooks
    have let the turn go on; `can_rescue`: the last call did not follow a compaction."""

    calls: int = 1
    escalated: bool = False
    recoveries: int = 0
    stop_blocks: int = 0
    can_rescue: bool = True

    def next_turn(self, *, blocked: bool = False) -> LoopState:
        return LoopState(self.calls + 1, stop_blocks=self.stop_blocks + blocked)

    def compacted(self) -> LoopState:
        return LoopState(self.calls, stop_blocks=self.stop_blocks, can_rescue=False)


def failed_result(terminal: EndReason, errors: Sequence[str]) -> Json:
    ends = {"subtype": "error_during_execution", "terminal_reason": terminal.value, "errors": [*errors]}
    return {"type": "result", "is_error": True, **ends}


@dataclass(frozen=True)
class TurnEnding:
    """`text` is the answer or the error; `errors` is listed by results of subtype `error_…`. `denials` are those of an
    agent of others."""

    terminal: EndReason
    text: str = ""
    errors: tuple[str, ...] = ()
    api_error_status: int | None = None
    structured: dict[str, Any] | None = None
    denials: tuple[Json, ...] = ()

    @property
    def is_error(self) -> bool:
        return self.terminal not in (EndReason.COMPLETED, EndReason.HOOK_STOPPED, EndReason.STOP_HOOK_PREVENTED)

    @property
    def is_empty(self) -> bool:
        return self.terminal is EndReason.COMPLETED and not self.text.strip() and self.structured is None

    @property
    def subtype(self) -> str:
        return _SUBTYPES.get(self.terminal, "success")


@dataclass(frozen=True)
class ProgramChoice:
    """What a program lets somebody choose from: models, modes. `option` is the id of the config option, "" where the
    program has a method of its own for it. `values` are names by the value that is sent, perhaps among others."""

    current: str
    values: Mapping[str, str]
    option: str = ""
    takes_any: bool = False

    def find(self, wanted: str) -> str:
        """Return the value that a word of the person or of ccb means, "" for none."""
        plain = plain_word(wanted)
        for matches in (str.__eq__, str.startswith, str.__contains__):
            for value, name in self.values.items():
                if plain and any(matches(plain_word(each), plain) for each in (value, name)):
                    return value
        return wanted if self.takes_any else ""


def plain_word(text: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", text.lower())


NO_CHOICE = ProgramChoice("", {})


class ProgramFacts:
    """What a program says of itself. `session` is its own id of the conversation; `used` and `size` are what fills its
    window and how large that is, in tokens, and `usage` what the last turn took, if it says so. `follows` is the
    permission mode of ccb that it was last told, `unmet` what it has not taken of the session, for the person."""

    def __init__(self) -> None:
        self.session = ""
        self.models = self.modes = NO_CHOICE
        self.commands: Sequence[tuple[str, str, str]] = ()
        self.usage: Json = {}
        self.used = self.size = 0
        self.cost_usd = 0.0
        self.follows = DEFAULT
        self.unmet: list[str] = []


class AgentProgram(Protocol):
    """A program of others that is the agent: it runs the turns in place of the model and the tools of ccb."""

    name: str

    @property
    def facts(self) -> ProgramFacts: ...

    @property
    def is_all_memory(self) -> bool:
        """Whether its conversation may be lost with its process."""

    async def settle(self) -> None:
        """Wait until it has started, or cannot be."""

    async def prepare(self, agent_log: AgentLog, state: AgentState) -> None:
        """Settle, and take the model and the mode of the session; what fails is for `run` to tell."""

    async def run(self, agent_log: AgentLog, state: AgentState, prompts: Sequence[Prompt]) -> TurnEnding:
        """Run a turn, after `prepare`. Raise NotKept. When it is cancelled, the program has ended its turn."""

    def unread(self, prompts: Sequence[Prompt]) -> None:
        """Keep prompts that it gets together with the next one."""

    async def forget(self, agent_log: AgentLog) -> None:
        """Begin a new conversation."""

    def begin(self) -> None:
        """Start it beside other work, if it does not run."""

    async def close(self) -> None:
        """End it."""


T = TypeVar("T")

_CANCEL_GRACE = 5.0


class Interrupted(Exception):
    pass


class StopSignal:
    def __init__(self) -> None:
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_set(self) -> bool:
        return self._stop.done()

    def set(self) -> None:
        if not self._stop.done():
            self._stop.set_result(None)

    async def unless_set(self, work: Awaitable[T]) -> T:
        """Return the result of `work`, or cancel it and raise Interrupted when the turn is stopped before."""
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
    """A prompt of the person or a notice of the worker (`origin`). `input_id` is that of the journalled input.
    `verbatim`: no command or file is looked for; `silent`: read with the next prompt; `shell`: a command line."""

    blocks: Sequence[Json]
    input_id: str = ""
    origin: Json | None = None
    verbatim: bool = False
    silent: bool = False
    shell: bool = False

    @staticmethod
    def from_input(input_id: str, line: UserMessage) -> Prompt:
        shell = line.body.get(SHELL_COMMAND) is True
        silent = shell or line.body.get("shouldQuery") is False
        return Prompt(line.blocks, input_id, None, silent or line.body.get("client_composed") is True, silent, shell)


def origin_of(prompts: Sequence[Prompt]) -> Json | None:
    """Return the public origin of a turn with these prompts: None if one of them is the person's."""
    return prompts[0].origin if prompts and all(prompt.origin for prompt in prompts) else None


MAX_TRIES = 5  # in one turn, to give a fitting value
NAME = "StructuredOutput"
_ASK = f"Finish now: call {NAME} once, with the result in the form that its schema describes."
_ABOUT = (
    "Give the final result of the task as a value that fits the schema. The program that asked reads this value and "
    "nothing else. Call it exactly once, when the work is done."
)


class StructuredOutput(Tool):
    """The tool by which the model gives the value that a client's schema wants."""

    def __init__(self, schema: Json) -> None:
        self.declaration = declared(ToolTraits(NAME, Effect.NONE, main_only=True), _ABOUT, schema)
        self.value: Json | None = None
        self._tries = 0

    def begin_turn(self) -> None:
        self.value, self._tries = None, 0

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        self.value = tool_input
        return ToolResult("The result was taken.")

    def missed(self) -> str:
        """Return what to tell a model that has not given a fitting value."""
        self._tries += 1
        return _ASK

    @property
    def given_up(self) -> TurnEnding | None:
        errors = (f"No fitting value after {MAX_TRIES} tries",)
        return TurnEnding(EndReason.NO_STRUCTURED_OUTPUT, errors=errors) if self._tries >= MAX_TRIES else None


@dataclass(frozen=True)
class Budget:
    """`limit` is what a client allows, `total` the session's cost at which that is spent, in dollars."""

    limit: float
    total: float

    def rest(self, cost: float) -> Budget:
        return Budget(self.limit, max(0.0, self.total - cost))

    def spent(self, cost: float) -> TurnEnding | None:
        if cost < self.total:
            return None
        limit = f"{self.limit:.9f}".rstrip("0").rstrip(".")
        return TurnEnding(EndReason.BUDGET_EXHAUSTED, errors=(f"Reached maximum budget (${limit})",))


_TARGET = re.compile(r"\+(\d{1,6}(?:\.\d{1,3})?)(k|m)", re.IGNORECASE)
_UNITS = {"k": 1_000, "m": 1_000_000}
_REACHED = 0.9  # of the target
_LITTLE = 500  # tokens of output between two stops
_MIN_NUDGES = 3  # before little output ends the work


class TokenTarget:
    """The target of one turn, in tokens of output; 0 for none."""

    def __init__(self) -> None:
        self.tokens = 0
        self._nudges = 0
        self._last = 0
        self._little = 0  # stops in a row with little output

    def take(self, prompts: Sequence[Prompt]) -> int:
        """Use the target in prompts that join the turn. Return it, 0 if they name none."""
        said = [each.blocks for each in prompts if each.origin is None and not each.verbatim]
        texts = [" ".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text") for blocks in said]
        found = max((target_in(text.split()) for text in texts), default=0)
        self.tokens = found or self.tokens
        return found

    def nudge(self, used: int) -> str:
        """Return what to tell a model that has stopped after `used` tokens, "" if it may stop."""
        self._little = self._little + 1 if used - self._last < _LITTLE else 0
        self._last = used
        if used >= _REACHED * self.tokens or self.is_given_up:
            return ""
        self._nudges += 1
        share = round(100 * used / self.tokens)
        return (
            f"You have used {used:,} of the {self.tokens:,} tokens that the user wants to be spent here ({share} %). "
            "Go on with the work, and do not sum up."
        )

    @property
    def is_given_up(self) -> bool:
        return self._nudges >= _MIN_NUDGES and self._little >= 2


def target_in(words: Sequence[str]) -> int:
    for word in (*words[:1], *words[-1:]):
        match = _TARGET.fullmatch(word.rstrip(".!"))
        if match:
            return int(float(match[1]) * _UNITS[match[2].lower()])
    return 0
