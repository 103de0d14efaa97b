"""The public stream-json objects, typed, with streaming events. `body` is the object as it was read, which headless
output prints byte for byte. `parse_message` never raises: a missing or wrong field gets the empty value of its type."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Callable, Union

from .dataclass import dataclass
from .frames import Json
from .prompt_content import is_attached_file


def _at(*path: str) -> dict[str, tuple[str, ...]]:
    """The metadata of a field that is read from this place in the object, and not from the place of its name."""
    return {"path": path}


@dataclass(frozen=True)
class AssistantMessage:
    """Finished blocks of the model answer `message_id`. `is_api_error`: ccb wrote it to show a failed model call."""

    body: Json
    message_id: str = field(metadata=_at("message", "id"))
    blocks: list[Json] = field(metadata=_at("message", "content"))
    is_api_error: bool = field(metadata=_at("is_api_error_message"))


@dataclass(frozen=True)
class UserMessage:
    """A prompt, a tool result or a note. `uuid` is from its client. `is_replay`: an echo, which is not part of the
    conversation. `is_summary`: it replaces the whole conversation before it."""

    body: Json
    blocks: list[Json] = field(metadata=_at("message", "content"))
    uuid: str
    is_replay: bool = field(metadata=_at("isReplay"))
    is_summary: bool = field(metadata=_at("isCompactSummary"))

    def text(self, separator: str) -> str:
        return separator.join(str(block.get("text", "")) for block in self.blocks if not is_attached_file(block))

    def done_tool_uses(self) -> set[str]:
        return {as_text(block.get("tool_use_id")) for block in self.blocks if block.get("type") == "tool_result"}


@dataclass(frozen=True)
class ResultMessage:
    """The end of a turn. `total_cost_usd` and `model_usage` count for the whole session."""

    body: Json
    subtype: str
    is_error: bool
    errors: list[str]
    total_cost_usd: float
    model_usage: dict[str, Json] = field(metadata=_at("modelUsage"))


@dataclass(frozen=True)
class SystemMessage:
    """A notice of the worker: `init`, `status`, `api_retry`, `permission_denied` and others. `permission_mode` is the
    mode that holds from here on, "" when the notice does not name one. `attempt` counts the retries of a model call,
    from 1. `decision_behavior` of a denied tool call is "ask" if it was denied only because nobody could be asked."""

    body: Json
    subtype: str
    model: str
    cwd: str
    permission_mode: str = field(metadata=_at("permissionMode"))
    attempt: int
    decision_behavior: str


@dataclass(frozen=True)
class CompactMessage:
    """`compact_boundary`: the summary that follows replaces the conversation so far, of `pre_tokens`, or the `part` of
    it that begins (`from`) or ends (`up_to`) with the prompt of record `at`. `prefix_tokens` is the estimated size of
    what stays, and of what goes before the conversation. `microcompact_boundary` (`is_micro`): the contents of the
    results in `cleared` are left out of the conversation from here on, which saves `tokens_saved`."""

    body: Json
    is_micro: bool
    pre_tokens: int
    post_tokens: int
    prefix_tokens: int
    tokens_saved: int
    cleared: list[str]
    part: str
    at: int


@dataclass(frozen=True)
class TaskMessage:
    """News of a task: `task_started`, `task_progress` (never journalled), `task_updated` (its patch may say
    `is_backgrounded`) or `task_notification`, which is its end. `status` is the public one at its end: completed,
    failed or stopped. `tool_use_id` is the call that started it."""

    body: Json
    subtype: str
    task_id: str
    task_type: str
    description: str
    tool_use_id: str
    output_file: str
    status: str
    summary: str

    @property
    def in_background(self) -> bool:
        return any(each.get("is_backgrounded") is True for each in (self.body, as_dict(self.body.get("patch"))))


@dataclass(frozen=True)
class ControlRequest:
    """A question of the worker to the client (`can_use_tool`), or a command of the client (`interrupt`, …)."""

    body: Json
    request_id: str
    subtype: str = field(metadata=_at("request", "subtype"))
    request: Json

    @property
    def tool_name(self) -> str:
        return self.text("tool_name")

    @property
    def input(self) -> Json:
        return as_dict(self.request.get("input"))

    def text(self, name: str) -> str:
        return as_text(self.request.get(name))


@dataclass(frozen=True)
class ControlCancel:
    """The question `request_id` is withdrawn: nobody has to answer it any more."""

    body: Json
    request_id: str


@dataclass(frozen=True)
class ControlResponse:
    """The answer to a control request: the `payload` of a success, or an `error` with its public `code`."""

    body: Json
    request_id: str = field(metadata=_at("response", "request_id"))
    subtype: str = field(metadata=_at("response", "subtype"))
    payload: Json | None = field(metadata=_at("response", "response"))
    error: str = field(metadata=_at("response", "error"))
    code: str = field(metadata=_at("response", "error_code"))


@dataclass(frozen=True)
class StreamEventMessage:
    """A raw event of the model's answer; never journalled."""

    body: Json
    event: Json


@dataclass(frozen=True)
class ToolProgressMessage:
    """What a running tool has printed so far; never journalled."""

    body: Json
    tool_use_id: str


@dataclass(frozen=True)
class OtherMessage:
    """An object of a type that this version does not know."""

    body: Json
    type: str


PublicMessage = Union[
    AssistantMessage, UserMessage, ResultMessage, SystemMessage, CompactMessage, TaskMessage, ControlRequest,
    ControlCancel, ControlResponse, StreamEventMessage, ToolProgressMessage, OtherMessage,
]  # fmt: skip


def as_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def as_dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def as_number(value: object) -> float:
    """Return `value` as a number from 0 to 10**12: integers in JSON may be too large for a float."""
    return float(max(0, min(value, 10**12))) if isinstance(value, (int, float)) else 0.0


def as_blocks(content: object) -> list[Json]:
    """Return the content blocks of a message. Plain text becomes one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


READERS: dict[str, Callable[[Any], object]] = {
    "str": as_text,
    "str | None": lambda value: value if isinstance(value, str) else None,
    "bool": lambda value: value is True,
    "int": lambda value: value if isinstance(value, int) else 0,
    "float": lambda value: value if isinstance(value, (int, float)) else 0.0,
    "Json": as_dict,
    "Json | None": lambda value: value if isinstance(value, dict) else None,
    "list[Json]": as_blocks,
    "list[str]": lambda value: list(map(as_text, value)) if isinstance(value, list) else [],
    "dict[str, Json]": lambda value: {name: each for name, each in as_dict(value).items() if isinstance(each, dict)},
}
"""The function that reads a field's value, by the annotation of its type."""

BLOCKED_PROMPT = "UserPromptSubmit operation blocked by hook:"
CUT_OFF = "The worker was stopped in the middle of this turn. What its tools had done until then stays done."
"""How the result of a prompt begins that a hook has refused. Nothing else in it tells it from a command's."""

_TYPES: dict[str, type[Any]] = {
    "assistant": AssistantMessage,
    "user": UserMessage,
    "result": ResultMessage,
    "system": SystemMessage,
    "control_request": ControlRequest,
    "control_cancel_request": ControlCancel,
    "control_response": ControlResponse,
    "stream_event": StreamEventMessage,
    "tool_progress": ToolProgressMessage,
}
_TASK_SUBTYPES = ("task_started", "task_progress", "task_updated", "task_notification")
_SHAPES: dict[type[Any], list[tuple[tuple[str, ...], Callable[[Any], object]]]] = {
    cls: [(each.metadata.get("path", (each.name,)), READERS[str(each.type)]) for each in fields(cls)[1:]]
    for cls in (*_TYPES.values(), TaskMessage, CompactMessage)
}


def parse_message(body: Json) -> PublicMessage:
    kind, subtype, given = as_text(body.get("type")), as_text(body.get("subtype")), body
    cls = _TYPES.get(kind)
    if cls is None:
        return OtherMessage(body, kind)
    if cls is SystemMessage and subtype in _TASK_SUBTYPES:
        cls = TaskMessage
    elif cls is SystemMessage and subtype in ("compact_boundary", "microcompact_boundary"):
        is_micro = subtype == "microcompact_boundary"
        cls, given = CompactMessage, as_dict(body.get("microcompact_metadata" if is_micro else "compact_metadata"))
        given = {**given, "is_micro": is_micro}
    values = []
    for path, read in _SHAPES[cls]:
        value: Any = given
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        values.append(read(value))
    make: Callable[..., PublicMessage] = cls
    return make(body, *values)


MAX_EVENT = 4 * 1024 * 1024  # size limit of an event in bytes, all its lines together
_TEXT_FIELDS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}


@dataclass(frozen=True)
class MessageStart:
    message_id: str


@dataclass(frozen=True)
class ContentBlockStart:
    """Block number `index` of the message begins. `tool_id` is None unless the block is a tool call that has an id."""

    index: int
    kind: str
    tool_id: str | None
    tool_name: str


@dataclass(frozen=True)
class ContentBlockDelta:
    """Block number `index` grows by `text`, the `field` of the delta; both are empty for a delta without text."""

    index: int
    field: str
    text: str


@dataclass(frozen=True)
class ContentBlockStop:
    """Block number `index` is complete."""

    index: int


@dataclass(frozen=True)
class MessageStop:
    """The message is complete."""


ApiStreamEvent = Union[MessageStart, ContentBlockStart, ContentBlockDelta, ContentBlockStop, MessageStop]


def parse_stream_event(event: Json) -> ApiStreamEvent | None:
    """Return the typed event; None for one of another type or a broken one."""
    kind, index = event.get("type"), event.get("index")
    if kind == "message_start":
        return MessageStart(str(as_dict(event.get("message")).get("id") or ""))
    if kind == "message_stop":
        return MessageStop()
    if not isinstance(index, int):
        return None
    if kind == "content_block_start":
        block = as_dict(event.get("content_block"))
        tool_id = block.get("id") if isinstance(block.get("id"), str) else None
        return ContentBlockStart(index, as_text(block.get("type")), tool_id, as_text(block.get("name")))
    if kind == "content_block_delta":
        delta = as_dict(event.get("delta"))
        field_name = _TEXT_FIELDS.get(str(delta.get("type")), "")
        text = delta.get(field_name)
        return ContentBlockDelta(index, field_name, text) if isinstance(text, str) else ContentBlockDelta(index, "", "")
    return ContentBlockStop(index) if kind == "content_block_stop" else None


def with_text(message: Json, delta: ContentBlockDelta, text: str) -> Json:
    event = message["event"]
    return {**message, "event": {**event, "delta": {**event["delta"], delta.field: text}}}
