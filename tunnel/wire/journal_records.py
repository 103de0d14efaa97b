"""Every record of a session's journal: one frozen dataclass for each kind, inside the envelope `Record`. Projections:
everything that is derived from a journal by reading its records in order.

A line of the journal is {"seq", "time", "kind", "body"}; an `event` frame carries the same kind and body.

Rules that keep journals of other versions readable: a field that is missing or has the wrong type gets the empty value
of its type; `Record.body` keeps the JSON body unchanged, with the fields this version does not know; a kind that this
version does not know becomes an `UnknownRecord`; a record that cannot be read at all becomes a `DamagedRecord` without
words.

Every record belongs to an agent. The main agent is not named in the body, so older versions read its records as before.
A sub-agent is named in `agent_id`, or in `parent_tool_use_id` where the body is a public message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, field, fields
from functools import cached_property
from typing import Any, Callable, ClassVar, TypeVar, Union, get_args

from .dataclass import dataclass
from .frames import Json
from .messages import READERS, PublicMessage, as_blocks, as_dict, as_text, parse_message
from .ndjson import dump, load, to_bytes

BEFORE = "before"  # the field of a user message with the uuids of the waiting prompts that it goes before

PRIORITY, LATER = "priority", "later"
"""The field of a user message that says when its prompt is taken, and its value for a prompt that waits until the
running turn is over. Any other prompt goes to the agent with the next tool results."""

TASK_PREFIX = "task:"  # the start of the `id` of a `queued` record that tells the end of a task; its id follows


@dataclass(frozen=True)
class QueuedRecord:
    """`queued`: the worker itself puts `content` into the queue of prompts, for the agent that the record names. A
    prompt takes it by its `id`, as it takes an input. `origin` is public, such as {"kind": "task-notification"}.
    `wakes`: it starts a turn when the agent is idle; otherwise it waits for the next one."""

    kind: ClassVar[str] = "queued"
    id: str
    content: list[Json]
    origin: Json
    wakes: bool = False


@dataclass(frozen=True)
class UnqueuedRecord:
    """`unqueued`: the input `id` was taken back before a turn took it."""

    kind: ClassVar[str] = "unqueued"
    id: str


@dataclass(frozen=True)
class MovedRecord:
    """`moved`: the waiting prompt `id` now stands before that of the input `before`, or last. `steers`: it does not
    wait for the end of the running turn any more."""

    kind: ClassVar[str] = "moved"
    id: str
    before: str = ""
    steers: bool = False


@dataclass(frozen=True)
class TakenRecord:
    """`taken`: a turn has taken the prompt of the input. A `prompt` record follows if it enters the conversation."""

    kind: ClassVar[str] = "taken"
    input_id: str


@dataclass(frozen=True)
class CompactStartRecord:
    """`compact_start`: the model is about to be asked for a summary, by `trigger` (manual or auto). `hint` is what the
    person wants it to keep. `part`: it replaces only what the prompt of record `at` began (`from`), or what was before
    that (`up_to`); `text` is the beginning of this prompt. A `compact_boundary` message or `compact_end` follows,
    unless the worker dies."""

    kind: ClassVar[str] = "compact_start"
    trigger: str
    hint: str = ""
    part: str = ""
    at: int = 0
    text: str = ""


@dataclass(frozen=True)
class CompactEndRecord:
    """`compact_end`: there is no summary. `outcome` is `failed` or `interrupted`."""

    kind: ClassVar[str] = "compact_end"
    outcome: str


@dataclass(frozen=True)
class HookRecord:
    """`hook`: `count` hooks are about to run. It is durable before they run. `match` is what their matchers were
    compared with, `about` the id of a tool call, `once` the keys of those that never run again, with blanks between."""

    kind: ClassVar[str] = "hook"
    event: str
    match: str = ""
    about: str = ""
    count: int = 0
    once: str = ""


@dataclass(frozen=True)
class DriverRecord:
    """`driver`: the client named `by` drives now, under `epoch`."""

    kind: ClassVar[str] = "driver"
    by: str
    epoch: int


@dataclass(frozen=True)
class WorkerRecord:
    """`worker`: another worker goes on with the session in `cwd`. `mark` marks the processes that it starts."""

    kind: ClassVar[str] = "worker"
    pid: int
    bundle: str
    mark: str | None
    cwd: str = ""


@dataclass(frozen=True)
class ForkedRecord:
    """`forked`: everything before was copied from the session `source`. If that has moved here from another machine:
    `root` is the directory in which it worked there and `to` the one here, both with every link resolved; `outputs` is
    the directory of its outputs there."""

    kind: ClassVar[str] = "forked"
    source: str = field(metadata={"key": "from"})
    root: str = ""
    to: str = ""
    outputs: str = ""


@dataclass(frozen=True)
class WorktreeRecord:
    """`worktree`: ccb is about to make the work tree `path` for the sub-agent of the record, on the new branch `branch`
    from the commit `base` of the repository whose own work tree is `top`. `branch` is "" for a directory that a hook
    has made instead. `removed`: it was removed, with the branch."""

    kind: ClassVar[str] = "worktree"
    path: str
    branch: str
    base: str
    top: str
    removed: bool = False


@dataclass(frozen=True)
class ReasoningRecord:
    """`reasoning`: the next turns use this effort ("": the model's own) and budget (0: none, -1: the model's own)."""

    kind: ClassVar[str] = "reasoning"
    effort: str
    thinking_tokens: int


@dataclass(frozen=True)
class AgentSessionRecord:
    """`agent_session`: the agent of others that works in this session knows the conversation under the id `id`."""

    kind: ClassVar[str] = "agent_session"
    agent: str
    id: str


@dataclass(frozen=True)
class FileChangeRecord:
    """`file_change`: a tool is about to change the file `path` (with every link resolved). `before` and `after` are the
    digests of its content, "" where there is no file; `mode` are its permission bits before. The content before is in
    the session's file history, unless `lost` says why it is not."""

    kind: ClassVar[str] = "file_change"
    tool_use_id: str
    path: str
    before: str
    after: str
    mode: int = 0
    lost: str = ""


@dataclass(frozen=True)
class RewindRecord:
    """`rewind`: the person goes back to before the message `message`. The records from number `to` on, up to this one,
    no longer belong to the conversation; with 0 the conversation stays as it is. `files` are about to be restored, each
    as {"path", "before", "after", "mode"}, with the digests of its content now and then."""

    kind: ClassVar[str] = "rewind"
    message: str
    to: int
    files: list[Json]
    text: str = ""


@dataclass(frozen=True)
class RewoundRecord:
    """`rewound`: the files of the last `rewind` are restored, but for those in `failed`: {"path", "why"}."""

    kind: ClassVar[str] = "rewound"
    failed: list[Json]


@dataclass(frozen=True)
class TodoRecord:
    """`todo`: an item of the session's todo list is new or has changed. `status` is pending, in_progress, completed or
    deleted; `active_form` says what is done while it is in progress. The items `blocked_by` come first."""

    kind: ClassVar[str] = "todo"
    id: str
    subject: str
    status: str
    active_form: str = ""
    description: str = ""
    owner: str = ""
    blocked_by: list[str] = field(default_factory=list)
    metadata: Json = field(default_factory=dict)


MAIN_AGENT = ""  # the id of a session's main agent. A sub-agent has the id of the tool call that started it

_AGENT = "agent_id"
_PARENT = "parent_tool_use_id"


@dataclass(frozen=True)
class PromptItem:
    """A part of a prompt: the journalled input `input_id`, or `content` where the prompt came without an input."""

    input_id: str = ""
    content: list[Json] = field(default_factory=list)


@dataclass(frozen=True)
class MessageRecord:
    """`message`: a public stream-json object that every client is shown."""

    kind: ClassVar[str] = "message"
    body: Json

    @cached_property
    def public(self) -> PublicMessage:
        return parse_message(self.body)


@dataclass(frozen=True)
class InputRecord:
    """`input`: a client's public object, applied once for each `id`. `by`: the viewer that sent it, or ""."""

    kind: ClassVar[str] = "input"
    id: str
    body: Json
    by: str = ""

    @cached_property
    def public(self) -> PublicMessage:
        return parse_message(self.body)


@dataclass(frozen=True)
class OptionsRecord:
    """`options`: the session begins, or a new client process goes on with `options`. Only the first one of a session
    has the other fields. `created` is in seconds of the host's clock."""

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
        return as_text(as_dict(self.options).get("model"))

    @property
    def permission_mode(self) -> str:
        return as_text(as_dict(self.options).get("permission_mode"))

    @property
    def sandbox(self) -> str:
        return as_text(as_dict(self.options).get("sandbox")) or "read-only"

    @property
    def effort(self) -> str:
        return as_text(as_dict(self.options).get("effort"))

    @property
    def foreign_agent(self) -> str:
        return as_text(as_dict(self.options).get("foreign_agent"))


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
    """`prompt`: what the person said, where it entered the conversation, behind the blocks of `context`."""

    kind: ClassVar[str] = "prompt"
    context: list[Json]
    items: list[PromptItem]

    @property
    def input_ids(self) -> list[str]:
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
    """`agent_result`: a turn of a sub-agent is over. `result` has the fields of a public `result` message."""

    kind: ClassVar[str] = "agent_result"
    result: Json

    @cached_property
    def public(self) -> PublicMessage:
        return parse_message(self.result)


@dataclass(frozen=True)
class LateAnswerRecord:
    """`late_answer`: an answer came for the question `request_id`, which was no longer open."""

    kind: ClassVar[str] = "late_answer"
    request_id: str


@dataclass(frozen=True)
class DamagedRecord:
    """`damaged`: a worker reports damage in the journal, or (without words) a record that cannot be read."""

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
    CompactStartRecord, CompactEndRecord, ReasoningRecord, WorktreeRecord, TodoRecord, AgentSessionRecord,
    UnknownRecord,
]  # fmt: skip


@dataclass(frozen=True)
class Record:
    """One record, number 0 outside of a journal, and the time in seconds of the host's clock (for people only). Pass
    `body` on, do not look into it. `content` is typed when it is first asked for: most records are only passed on."""

    seq: int
    time: float
    kind: str
    body: Json

    @property
    def agent_id(self) -> str:
        value = self.body.get(_PARENT if self.kind == "message" else _AGENT)
        return value if isinstance(value, str) else MAIN_AGENT

    @cached_property
    def content(self) -> Content:
        if self.kind == "message":
            return MessageRecord(self.body)
        cls = _KINDS.get(self.kind)
        if cls is None:
            return UnknownRecord(self.kind, self.body)
        content: Content = cls(*[read(self.body.get(key)) for _, key, _, read in _SHAPES[self.kind]])
        return content


def record_of(content: Content, seq: int = 0, time: float = 0.0, agent_id: str = MAIN_AGENT) -> Record:
    """Return a new record. A field that is equal to its default is not written."""
    if isinstance(content, (MessageRecord, UnknownRecord)):
        body = content.body
    else:
        given = [(key, getattr(content, name), default) for name, key, default, _ in _SHAPES[content.kind]]
        body = {key: value for key, value, default in given if default is MISSING or value != default}
    if isinstance(content, PromptRecord):
        items = content.items
        body["items"] = [{"input": each.input_id} if each.input_id else {"content": each.content} for each in items]
    if agent_id != MAIN_AGENT:
        body = {**body, _PARENT if isinstance(content, MessageRecord) else _AGENT: agent_id}
    return Record(seq, time, content.kind, body)


def agent_of_message(body: Json) -> str:
    return Record(0, 0.0, "message", body).agent_id


def parse_page(body: Json) -> list[Record]:
    """Return the records of a `past` frame, without those that are malformed."""
    listed = body.get("records")
    return [
        Record(each["seq"], 0.0, each["kind"], each["body"])
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict)
        and isinstance(each.get("kind"), str)
        and isinstance(each.get("body"), dict)
        and isinstance(each.get("seq"), int)
    ]


def parse_line(line: bytes) -> Record | None:
    """Return the record in a line of a journal, None when it is damaged."""
    try:
        given = as_dict(load(line.decode("utf-8")))
        seq, time, kind, body = (given.get(name) for name in ("seq", "time", "kind", "body"))
        if isinstance(seq, int) and isinstance(time, (int, float)) and isinstance(kind, str) and isinstance(body, dict):
            return Record(seq, float(time), kind, body)
    except (ValueError, RecursionError, OverflowError):  # OverflowError: the time is a number without end
        pass
    return None


def to_line(record: Record) -> bytes:
    line = {"seq": record.seq, "time": round(record.time, 3), "kind": record.kind, "body": record.body}
    return to_bytes(dump(line)) + b"\n"


def to_page(records: list[Record]) -> Json:
    return {"records": [{"seq": each.seq, "kind": each.kind, "body": each.body} for each in records]}


def in_session(record: Record, old: str, new: str) -> Record:
    """Return the record with the session id `new` wherever it names its own session, `old`."""
    body = dict(record.body)
    inner = body.get("body")
    if isinstance(inner, dict):
        body["body"] = inner = dict(inner)
    for named in (body, inner):
        if isinstance(named, dict):
            named.update({name: new for name in ("session_id", "session") if named.get(name) == old})
    return Record(record.seq, record.time, record.kind, body)


def _items(value: object) -> list[PromptItem]:
    return [
        PromptItem(as_text(item["input"])) if "input" in item else PromptItem(content=as_blocks(item.get("content")))
        for item in (value if isinstance(value, list) else ())
        if isinstance(item, dict)
    ]


_READERS: dict[str, Callable[[Any], object]] = {**READERS, "list[PromptItem]": _items}
_KINDS: dict[str, type[Any]] = {each.kind: each for each in get_args(Content) if each is not UnknownRecord}

_SHAPES: dict[str, list[tuple[str, str, object, Callable[[Any], object]]]] = {
    kind: [(f.name, f.metadata.get("key", f.name), f.default, _READERS[str(f.type)]) for f in fields(cls)]
    for kind, cls in _KINDS.items()
}
"""Of each kind, the fields: name, key in the body, default, and what reads it."""

Handler = TypeVar("Handler", bound=Callable[..., None])


def on(*types: type[Any], main_only: bool = False) -> Callable[[Handler], Handler]:
    """Mark a method of a projection as the handler of these types: record contents, or public lines of `message`
    records. `main_only`: not for the records of sub-agents."""

    def mark(handler: Handler) -> Handler:
        handler.__dict__["handles"] = types
        handler.__dict__["main_only"] = main_only
        return handler

    return mark


class Projection:
    """A value built from records. A handler marked with `on` gets the typed content and its record. A `message` record
    goes to the handler of MessageRecord, or else to that of its public line."""

    _handlers: ClassVar[dict[type[Any], Callable[..., None]]] = {}

    def __init_subclass__(cls) -> None:
        cls._handlers = dict(cls._handlers)
        for handler in vars(cls).values():
            for each in getattr(handler, "handles", ()):
                cls._handlers[each] = handler

    def apply(self, record: Record) -> None:
        content: object = record.content
        handler = self._handlers.get(type(content))
        if handler is None and isinstance(content, MessageRecord):
            content = content.public
            handler = self._handlers.get(type(content))
        if handler is not None and (not handler.__dict__["main_only"] or record.agent_id == MAIN_AGENT):
            handler(self, content, record)


def replay(records: Iterable[Record], *projections: Projection) -> None:
    """Feed a journal to projections, record by record: it may be larger than the memory."""
    for record in records:
        for projection in projections:
            projection.apply(record)
