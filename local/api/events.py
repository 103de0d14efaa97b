"""What a program sees of a turn: typed events, and the answer. Their texts are from the host, and raw: `ccb.printable`
makes one safe for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ccb.tunnel.errors import CcbError, ExitCode
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire import messages

from ..session.turn_outcomes import exit_code

D = TypeVar("D")
Json = dict[str, Any]
printable = neutralise


@dataclass(frozen=True)
class Event:
    """`raw` is the public stream-json object that it was made of, {} for one of this machine. `agent`: the id of the
    call that has started the sub-agent which it is about, "" for the main agent."""

    raw: Json = field(default_factory=dict, repr=False, kw_only=True)
    agent: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Text(Event):
    """A piece of the answer, as it streams. `Message` has the whole."""

    text: str


@dataclass(frozen=True)
class Thinking(Event):
    """A piece of the model's thinking, as it streams."""

    text: str


@dataclass(frozen=True)
class Message(Event):
    """Finished blocks of an answer of the model; `text` is what they say."""

    text: str
    blocks: tuple[Json, ...]


@dataclass(frozen=True)
class ToolCall(Event):
    """The model calls a tool."""

    id: str
    name: str
    input: Json


@dataclass(frozen=True)
class ToolOutput(Event):
    """What a running tool has printed so far; the next one replaces it."""

    id: str
    text: str


@dataclass(frozen=True)
class ToolResult(Event):
    """What the model gets for a call."""

    id: str
    text: str
    is_error: bool


@dataclass(frozen=True)
class Task(Event):
    """News of a task that runs beside the agent. `status` is "" until its end."""

    id: str
    description: str
    status: str


@dataclass(frozen=True)
class Notice(Event):
    """A sentence for the person, of ccb or of the worker."""

    text: str


@dataclass(frozen=True)
class Connection(Event):
    """The connection to the host has changed; the session goes on. `state` is "reconnecting" or "connected"."""

    state: str
    reason: str


@dataclass(frozen=True)
class Other(Event):
    """A message that has no class of its own here; `raw` is all of it."""

    type: str


@dataclass(frozen=True)
class Answer(Event, Generic[D]):
    """The end of a turn. `data` is the value of the schema. `cost` is what the turn has cost in dollars, `total_cost`
    the session. `exit_code` is that of `ccb -p`."""

    text: str
    data: D
    session_id: str
    cost: float
    total_cost: float
    turns: int
    duration_s: float
    usage: Mapping[str, Any]
    exit_code: ExitCode

    @property
    def ok(self) -> bool:
        return self.exit_code is ExitCode.OK


class TurnFailed(CcbError):
    """A turn has ended without what was asked for. `answer` is what there is of it."""

    exit_name = "AGENT_FAILED"
    way_out = "`.answer.raw` has the whole result."

    def __init__(self, what: str, answer: Answer[Any], code: ExitCode | None = None) -> None:
        super().__init__(what)
        self.answer = answer
        self.exit_name = (code or answer.exit_code).name

    def __reduce__(self) -> tuple[Any, ...]:
        return TurnFailed, (self.what, self.answer, self.exit_code)


class Schema(Generic[D]):
    """What `Answer.data` must fit: nothing, a JSON schema, or a type that pydantic knows. Raises TypeError."""

    def __init__(self, wanted: Any) -> None:
        self.json: Json = dict(wanted) if isinstance(wanted, Mapping) else {}
        self._adapter: Any = None
        if wanted is not None and not isinstance(wanted, Mapping):
            from pydantic import TypeAdapter  # 60 ms, which only such a prompt needs

            self._adapter = TypeAdapter(wanted)
            self.json = self._adapter.json_schema()
            if self.json.get("type") != "object":
                raise TypeError(f"the schema of an answer is that of an object, not of {wanted!r}")

    def read(self, data: object) -> Any:
        """Raise ValueError for data that does not fit."""
        if self.json and data is None:
            raise ValueError("it has no data; agents of others (`agent`) take no schema")
        return self._adapter.validate_python(data) if self._adapter is not None else data


def answer_of(message: messages.ResultMessage, cost: float, *, denied_unasked: bool) -> Answer[Any]:
    """Make the answer of a result. `cost` is what its turn has cost."""
    result = message.body
    text = result.get("result")
    return Answer(
        text=text if isinstance(text, str) else "\n".join(map(str, result.get("errors") or ())),
        data=result.get("structured_output"),
        session_id=messages.as_text(result.get("session_id")),
        cost=cost,
        total_cost=message.total_cost_usd,
        turns=int(messages.as_number(result.get("num_turns"))),
        duration_s=messages.as_number(result.get("duration_ms")) / 1000,
        usage=messages.as_dict(result.get("usage")),
        exit_code=exit_code(result, denied_unasked=denied_unasked),
        raw=result,
    )


def events_of(public: messages.PublicMessage) -> Iterator[Event]:
    """Yield the events of a message that is no result and no request."""
    body = public.body
    about: dict[str, Any] = {"raw": body, "agent": messages.as_text(body.get("parent_tool_use_id"))}
    match public:
        case messages.StreamEventMessage(event=event):
            delta = messages.parse_stream_event(event)
            if isinstance(delta, messages.ContentBlockDelta) and delta.field in ("text", "thinking"):
                yield (Text if delta.field == "text" else Thinking)(delta.text, **about)
        case messages.AssistantMessage(blocks=blocks):
            yield Message(_text_of(blocks), tuple(blocks), **about)
            yield from _of_tools(blocks, about)
        case messages.UserMessage(blocks=blocks) if public.done_tool_uses():
            yield from _of_tools(blocks, about)
        case messages.ToolProgressMessage(tool_use_id=tool_use_id):
            yield ToolOutput(tool_use_id, messages.as_text(body.get("output")), **about)
        case messages.TaskMessage() as task:
            yield Task(task.task_id, task.summary or task.description, task.status, **about)
        case messages.SystemMessage(subtype="informational"):
            yield Notice(messages.as_text(body.get("content")), **about)
        case _:
            yield Other(messages.as_text(body.get("subtype") or body.get("type")), **about)


def _of_tools(blocks: list[Json], about: dict[str, Any]) -> Iterator[Event]:
    for block in blocks:
        if block.get("type") == "tool_use":
            name, given = messages.as_text(block.get("name")), messages.as_dict(block.get("input"))
            yield ToolCall(messages.as_text(block.get("id")), name, given, **about)
        elif block.get("type") == "tool_result":
            text, failed = _text_of(messages.as_blocks(block.get("content"))), block.get("is_error") is True
            yield ToolResult(messages.as_text(block.get("tool_use_id")), text, failed, **about)


def _text_of(blocks: list[Json]) -> str:
    return "".join(messages.as_text(block.get("text")) for block in blocks if block.get("type") == "text")
