"""The records of a session's journal, typed.

A line of the journal is {"seq", "time", "kind", "body"}; an `event` frame carries the same kind and body. `parse` and
its siblings at the end of this module are the only code that looks into such a body. Everything else works with the
classes here: one frozen dataclass for each kind, inside the envelope `Record`.

Rules that keep journals of other versions readable: a field that is missing or has the wrong type gets the empty value
of its type; `Record.body` keeps the JSON body unchanged, with the fields this version does not know; a kind that this
version does not know becomes an `UnknownRecord`; a record that cannot be read at all becomes a `DamagedRecord` without
words.

Every record belongs to an agent. The main agent is not named in the body, so older versions read its records as before.
A sub-agent is named in `agent_id`, or in `parent_tool_use_id` where the body is a public message.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields
from functools import cached_property
from typing import Any, Callable, ClassVar, Union, get_args

from .dataclass import dataclass
from .frames import Json
from .kinds.queue import MovedRecord, QueuedRecord, TakenRecord, UnqueuedRecord
from .kinds.reasoning import ReasoningRecord
from .kinds.rewind import FileChangeRecord, RewindRecord, RewoundRecord
from .kinds.turns import CompactEndRecord, CompactStartRecord, HookRecord
from .kinds.workers import DriverRecord, ForkedRecord, WorkerRecord
from .kinds.worktrees import WorktreeRecord
from .messages import PublicLine, as_blocks, as_dict, as_text, parse_message
from .ndjson import dump, load, to_bytes

MAIN_AGENT = ""
"""The id of a session's main agent. A sub-agent has the id of the tool call that started it."""

_AGENT = "agent_id"
_PARENT = "parent_tool_use_id"


class RecordError(ValueError):
    """An object is not a journal record: a field of the envelope is missing or has the wrong type."""


@dataclass(frozen=True)
class PromptItem:
    """A part of a prompt: the journalled input `input_id`, or `content` where the prompt came without an input."""

    input_id: str = ""
    content: list[Json] = field(default_factory=list)


@dataclass(frozen=True)
class MessageRecord:
    """`message`: a public stream-json object that every client is shown. `body` is the object, `public` its typed
    form."""

    kind: ClassVar[str] = "message"
    body: Json

    @cached_property
    def public(self) -> PublicLine:
        return parse_message(self.body)


@dataclass(frozen=True)
class InputRecord:
    """`input`: a client's public object, applied once. `id` names the input, `body` is the object, `public` its typed
    form."""

    kind: ClassVar[str] = "input"
    id: str
    body: Json

    @cached_property
    def public(self) -> PublicLine:
        return parse_message(self.body)


@dataclass(frozen=True)
class OptionsRecord:
    """`options`: the session begins, or a new client process goes on with `options` (see `SessionOptions`). Only the
    first one of a session has the other fields: its id, the time in seconds of the host's clock, its directory, and the
    first worker."""

    kind: ClassVar[str] = "options"
    options: Json | None
    session: str = ""
    created: float = 0.0
    cwd: str = ""
    pid: int = 0
    bundle: str = ""
    mark: str | None = None

    @property
    def model(self) -> str:
        """The model that the options name, "" for none."""
        return as_text(as_dict(self.options).get("model"))

    @property
    def permission_mode(self) -> str:
        """The permission mode that the options name, "" for none."""
        return as_text(as_dict(self.options).get("permission_mode"))

    @property
    def sandbox(self) -> str:
        """The sandbox mode that the options name, "read-only" if they do not name one."""
        return as_text(as_dict(self.options).get("sandbox")) or "read-only"


@dataclass(frozen=True)
class TurnStartRecord:
    """`turn_start`: a turn begins."""

    kind: ClassVar[str] = "turn_start"


@dataclass(frozen=True)
class TurnEndRecord:
    """`turn_end`: the turn is over, and its result is in the journal."""

    kind: ClassVar[str] = "turn_end"


@dataclass(frozen=True)
class PromptRecord:
    """`prompt`: what the person said, at the place where it entered the conversation. `context` are blocks that go
    before it."""

    kind: ClassVar[str] = "prompt"
    context: list[Json]
    items: list[PromptItem]

    @property
    def input_ids(self) -> list[str]:
        """The ids of the inputs that the prompt takes."""
        return [item.input_id for item in self.items if item.input_id]


@dataclass(frozen=True)
class ToolStartRecord:
    """`tool_start`: a tool call is about to run. It is durable before the tool runs."""

    kind: ClassVar[str] = "tool_start"
    tool_use_id: str
    name: str


@dataclass(frozen=True)
class ModelEndRecord:
    """`model_end`: the answer `message_id` is complete. A later answer is another one, even under the same id."""

    kind: ClassVar[str] = "model_end"
    message_id: str
    stop_reason: str | None
    usage: Json


@dataclass(frozen=True)
class WithdrawnRecord:
    """`withdrawn`: the answer `message_id` was cut and is asked for again. Its lines do not count."""

    kind: ClassVar[str] = "withdrawn"
    message_id: str


@dataclass(frozen=True)
class ModelRecord:
    """`model`: the next model calls use another model."""

    kind: ClassVar[str] = "model"
    model: str


@dataclass(frozen=True)
class AgentResultRecord:
    """`agent_result`: a turn of a sub-agent is over. `result` has the fields of a public `result` message, which only
    the main agent sends: to a client it means that the session's turn is over."""

    kind: ClassVar[str] = "agent_result"
    result: Json

    @cached_property
    def public(self) -> PublicLine:
        return parse_message(self.result)


@dataclass(frozen=True)
class LateAnswerRecord:
    """`late_answer`: an answer came for the question `request_id`, which was no longer open."""

    kind: ClassVar[str] = "late_answer"
    request_id: str


@dataclass(frozen=True)
class DamagedRecord:
    """`damaged`: a worker reports damage in the journal (`what`). Without words it stands for a record that cannot be
    read."""

    kind: ClassVar[str] = "damaged"
    what: str = ""


@dataclass(frozen=True)
class UnknownRecord:
    """A record of a kind that this version does not know. Projections skip it."""

    kind: str
    body: Json


Content = Union[
    MessageRecord, InputRecord, QueuedRecord, UnqueuedRecord, MovedRecord, OptionsRecord,
    TurnStartRecord, TurnEndRecord, PromptRecord, ToolStartRecord,
    ModelEndRecord, WithdrawnRecord, ModelRecord, AgentResultRecord, LateAnswerRecord, DamagedRecord, DriverRecord,
    WorkerRecord, ForkedRecord, TakenRecord, HookRecord, FileChangeRecord, RewindRecord, RewoundRecord,
    CompactStartRecord, CompactEndRecord, ReasoningRecord, WorktreeRecord, UnknownRecord,
]  # fmt: skip


@dataclass(frozen=True)
class Record:
    """One record: its number and the time in seconds of the host's clock (for people only). A record that is not in a
    journal has the number 0. `body` is the JSON body for the journal and for frames: pass it on, do not look into it.
    `content` is typed when it is first asked for, because most records are only passed on."""

    seq: int
    time: float
    kind: str
    body: Json

    @property
    def agent_id(self) -> str:
        """The id of the agent that the record belongs to."""
        return _agent(self.body.get(_PARENT if self.kind == "message" else _AGENT))

    @cached_property
    def content(self) -> Content:
        """The typed content of the record."""
        return _content_of(self.kind, self.body)


def record_of(content: Content, seq: int = 0, time: float = 0.0, agent_id: str = MAIN_AGENT) -> Record:
    """Return a new record of `agent_id`."""
    body = content.body if isinstance(content, MessageRecord) else _body_of(content)
    if agent_id != MAIN_AGENT:
        body = {**body, _PARENT if isinstance(content, MessageRecord) else _AGENT: agent_id}
    return Record(seq, time, content.kind, body)


def parse(data: object) -> Record:
    """Return the record in a JSON object {"seq", "time", "kind", "body"}. Raises RecordError."""
    if not isinstance(data, dict):
        raise RecordError("a record is a JSON object")
    try:
        seq, time, kind, body = data["seq"], data["time"], data["kind"], data["body"]
    except KeyError as error:
        raise RecordError(f"a record has no {error}") from None
    if not (
        isinstance(seq, int) and isinstance(time, (int, float)) and isinstance(kind, str) and isinstance(body, dict)
    ):
        raise RecordError("a field of a record has the wrong type")
    try:
        return Record(seq, float(time), kind, body)
    except OverflowError:
        raise RecordError("the time of a record is not a time") from None


def parse_event(seq: int, kind: str, body: Json) -> Record:
    """Return the record in an `event` frame. Its time is 0, because frames do not carry it."""
    return Record(seq, 0.0, kind, body)


def agent_of_message(body: Json) -> str:
    """Return the id of the agent that a public object belongs to."""
    return _agent(body.get(_PARENT))


def _agent(value: object) -> str:
    return value if isinstance(value, str) else MAIN_AGENT


def parse_page(body: Json) -> list[Record]:
    """Return the records in the body of a `past` frame, without those that are malformed."""
    listed = body.get("records")
    return [
        parse_event(each["seq"], each["kind"], each["body"])
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict)
        and isinstance(each.get("kind"), str)
        and isinstance(each.get("body"), dict)
        and isinstance(each.get("seq"), int)
    ]


def parse_line(line: bytes) -> Record | None:
    """Return the record in a line of a journal, None when the line is damaged."""
    try:
        return parse(load(line.decode("utf-8")))
    except (ValueError, RecursionError):
        return None


def to_line(record: Record) -> bytes:
    """Return the line of a record in the journal, with its newline. `parse_line` reads it."""
    line = {"seq": record.seq, "time": round(record.time, 3), "kind": record.kind, "body": record.body}
    return to_bytes(dump(line)) + b"\n"


def to_page(records: list[Record]) -> Json:
    """Return the body of a `past` frame with these records. `parse_page` reads it."""
    return {"records": [{"seq": each.seq, "kind": each.kind, "body": each.body} for each in records]}


def in_session(record: Record, old: str, new: str) -> Record:
    """Return the record with the session id `old` replaced by `new` wherever it names its own session."""
    body = dict(record.body)
    inner = body.get("body")
    if isinstance(inner, dict):
        body["body"] = inner = dict(inner)
    for named in (body, inner):
        if isinstance(named, dict):
            named.update({name: new for name in ("session_id", "session") if named.get(name) == old})
    return Record(record.seq, record.time, record.kind, body)


def _texts(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _items(value: object) -> list[PromptItem]:
    return [
        PromptItem(as_text(item["input"])) if "input" in item else PromptItem(content=as_blocks(item.get("content")))
        for item in (value if isinstance(value, list) else ())
        if isinstance(item, dict)
    ]


_READERS: dict[str, Callable[[Any], object]] = {
    "str": as_text,
    "str | None": _texts,
    "bool": lambda value: value is True,
    "int": lambda value: value if isinstance(value, int) else 0,
    "float": lambda value: value if isinstance(value, (int, float)) else 0.0,
    "Json": as_dict,
    "Json | None": lambda value: value if isinstance(value, dict) else None,
    "list[Json]": as_blocks,
    "list[PromptItem]": _items,
}
"""The function that reads a field's value, by the annotation of its type."""

_KINDS: dict[str, type[Any]] = {each.kind: each for each in get_args(Content) if each is not UnknownRecord}

_SHAPES: dict[str, list[tuple[str, Callable[[Any], object]]]] = {
    kind: [(each.metadata.get("key", each.name), _READERS[str(each.type)]) for each in fields(cls)]
    for kind, cls in _KINDS.items()
}
_WRITTEN: dict[str, list[tuple[str, str, object]]] = {
    kind: [(each.name, each.metadata.get("key", each.name), each.default) for each in fields(cls)]
    for kind, cls in _KINDS.items()
}


def _content_of(kind: str, body: Json) -> Content:
    if kind == "message":
        return MessageRecord(body)
    cls = _KINDS.get(kind)
    if cls is None:
        return UnknownRecord(kind, body)
    content: Content = cls(*[read(body.get(key)) for key, read in _SHAPES[kind]])
    return content


def _body_of(content: Content) -> Json:
    """Return the JSON body. A field that has a default is left out when it is equal to its default."""
    if isinstance(content, (MessageRecord, UnknownRecord)):
        return content.body
    body: Json = {}
    for name, key, default in _WRITTEN[content.kind]:
        value = getattr(content, name)
        if default is MISSING or value != default:
            body[key] = value
    if isinstance(content, PromptRecord):
        body["items"] = [
            {"input": item.input_id} if item.input_id else {"content": item.content} for item in content.items
        ]
    return body
