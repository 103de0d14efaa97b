"""The public stream-json objects, typed, with streaming events.

Each class keeps the object it was read from in `body`, unchanged, because headless output prints that object byte for
byte. Content blocks and stream events belong to the Messages API and stay plain JSON. `parse_message` never raises: a
field that is missing or has the wrong type gets the empty value of its type, and an object of an unknown type becomes
an `OtherMessage`.
"""

from __future__ import annotations

from typing import Callable, Union

from .dataclass import dataclass
from .frames import Json
from .prompt_content import is_attached_file


@dataclass(frozen=True)
class AssistantMessage:
    """One or more finished blocks of a model answer. Lines with the same `message_id` belong to one answer.
    `is_api_error`: ccb wrote the line itself to show a failed model call, so it is not part of the conversation."""

    body: Json
    message_id: str
    blocks: list[Json]
    is_api_error: bool


@dataclass(frozen=True)
class UserMessage:
    """A prompt, a tool result or a note. `uuid` is the id its client gave it, "" for none. `is_replay`: an echo of a
    prompt for clients that asked for echoes, so it is not part of the conversation. `is_summary`: it replaces the whole
    conversation before it."""

    body: Json
    blocks: list[Json]
    uuid: str
    is_replay: bool
    is_summary: bool = False

    def text(self, separator: str) -> str:
        """Return the texts of its blocks, joined, without files that go along with a prompt. Another block without text
        counts as an empty text."""
        return separator.join(str(block.get("text", "")) for block in self.blocks if not is_attached_file(block))

    def done_tool_uses(self) -> set[str]:
        """Return the ids of the tool calls whose results it holds."""
        return {as_text(block.get("tool_use_id")) for block in self.blocks if block.get("type") == "tool_result"}


@dataclass(frozen=True)
class ResultMessage:
    """The end of a turn. `total_cost_usd` and `model_usage` count for the whole session."""

    body: Json
    subtype: str
    is_error: bool
    errors: list[str]
    total_cost_usd: float
    model_usage: dict[str, Json]


@dataclass(frozen=True)
class SystemMessage:
    """A notice of the worker: `init`, `status`, `api_retry`, `permission_denied` and others. `permission_mode` is the
    mode that holds from here on, "" when the notice does not name one. `init` names the model and the directory.
    `attempt` counts the retries of a model call, from 1. `decision_behavior` of a denied tool call is "ask" if it was
    denied only because nobody could be asked."""

    body: Json
    subtype: str
    model: str
    cwd: str
    permission_mode: str
    attempt: int
    decision_behavior: str


@dataclass(frozen=True)
class CompactMessage:
    """`compact_boundary`: the summary that follows replaces the conversation so far, of `pre_tokens`. `prefix_tokens`
    is the estimated size of what goes before the conversation. `microcompact_boundary` (`is_micro`): the contents of
    the results in `cleared` are left out of the conversation from here on, which saves `tokens_saved`."""

    body: Json
    is_micro: bool
    pre_tokens: int
    post_tokens: int
    prefix_tokens: int
    tokens_saved: int
    cleared: list[str]


@dataclass(frozen=True)
class TaskMessage:
    """News of a task: `task_started`, `task_progress` (never journalled), `task_updated` (its patch may say
    `is_backgrounded`) or `task_notification`, which is its end. `status` is the public one at its end: completed,
    failed or stopped. `tool_use_id` is the call that started it. `in_background`: the agent does not wait for it."""

    body: Json
    subtype: str
    task_id: str
    task_type: str
    description: str
    tool_use_id: str
    output_file: str
    status: str
    summary: str
    in_background: bool


@dataclass(frozen=True)
class ControlRequest:
    """A question of the worker to the client (`can_use_tool`) or a command of the client to the worker (`interrupt`,
    …)."""

    body: Json
    request_id: str
    subtype: str
    request: Json

    @property
    def tool_name(self) -> str:
        """The tool that a `can_use_tool` request is about."""
        return self.text("tool_name")

    @property
    def input(self) -> Json:
        """The input of the call that a `can_use_tool` request is about."""
        return as_dict(self.request.get("input"))

    def text(self, name: str) -> str:
        """Return the field `name` of the request as text."""
        return as_text(self.request.get(name))


@dataclass(frozen=True)
class ControlCancel:
    """The question `request_id` is withdrawn: nobody has to answer it any more."""

    body: Json
    request_id: str


@dataclass(frozen=True)
class ControlResponse:
    """The answer to a control request. `payload` is what a successful answer holds (None when it holds no object),
    `error` what a refusal says, and `code` its public `error_code`."""

    body: Json
    request_id: str
    subtype: str
    payload: Json | None
    error: str
    code: str


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


def parse_message(body: Json) -> PublicMessage:
    """Return the typed form of a public object."""
    kind = as_text(body.get("type"))
    parser = _PARSERS.get(kind)
    return parser(body) if parser is not None else OtherMessage(body, kind)


def as_text(value: object) -> str:
    """Return `value` as text: unchanged if it is text, "" for null, else `str(value)`."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def as_dict(value: object) -> Json:
    """Return `value` when it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_number(value: object) -> float:
    """Return `value` as a number from 0 to 10**12, and 0 for any other type. Integers in JSON may be too large for a
    float."""
    return float(max(0, min(value, 10**12))) if isinstance(value, (int, float)) else 0.0


def as_blocks(content: object) -> list[Json]:
    """Return the content blocks of a message. Plain text becomes one text block; what is not a block is left out."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _assistant(body: Json) -> PublicMessage:
    message = as_dict(body.get("message"))
    blocks = as_blocks(message.get("content"))
    return AssistantMessage(body, as_text(message.get("id")), blocks, bool(body.get("is_api_error_message")))


def _user(body: Json) -> PublicMessage:
    uuid = body.get("uuid")
    blocks = as_blocks(as_dict(body.get("message")).get("content"))
    replay, summary = bool(body.get("isReplay")), bool(body.get("isCompactSummary"))
    return UserMessage(body, blocks, uuid if isinstance(uuid, str) else "", replay, summary)


def _result(body: Json) -> PublicMessage:
    errors, cost = body.get("errors"), body.get("total_cost_usd")
    usage = as_dict(body.get("modelUsage"))
    return ResultMessage(
        body,
        as_text(body.get("subtype")),
        bool(body.get("is_error")),
        [str(each) for each in errors] if isinstance(errors, list) else [],
        cost if isinstance(cost, (int, float)) else 0.0,
        {name: entry for name, entry in usage.items() if isinstance(entry, dict)},
    )


BLOCKED_PROMPT = "UserPromptSubmit operation blocked by hook:"
"""How the result of a prompt begins that a hook has refused. Nothing else in it tells it from a command's."""

_COMPACT = {"compact_boundary": "compact_metadata", "microcompact_boundary": "microcompact_metadata"}


_TASK_SUBTYPES = ("task_started", "task_progress", "task_updated", "task_notification")


def _system(body: Json) -> PublicMessage:
    subtype = as_text(body.get("subtype"))
    if subtype in _COMPACT:
        return _compact(body, subtype)
    if subtype in _TASK_SUBTYPES:
        return _task(body)
    mode, attempt = body.get("permissionMode"), body.get("attempt")
    return SystemMessage(
        body,
        subtype,
        as_text(body.get("model")),
        as_text(body.get("cwd")),
        mode if isinstance(mode, str) else "",
        attempt if isinstance(attempt, int) else 0,
        as_text(body.get("decision_behavior")),
    )


def _compact(body: Json, subtype: str) -> PublicMessage:
    given = as_dict(body.get(_COMPACT[subtype]))
    names = ("pre_tokens", "post_tokens", "prefix_tokens", "tokens_saved")
    pre, post, prefix, saved = [value if isinstance(value := given.get(name), int) else 0 for name in names]
    cleared = given.get("cleared")
    ids = [as_text(each) for each in cleared] if isinstance(cleared, list) else []
    return CompactMessage(body, subtype == "microcompact_boundary", pre, post, prefix, saved, ids)


def _task(body: Json) -> PublicMessage:
    return TaskMessage(
        body,
        as_text(body.get("subtype")),
        as_text(body.get("task_id")),
        as_text(body.get("task_type")),
        as_text(body.get("description")),
        as_text(body.get("tool_use_id")),
        as_text(body.get("output_file")),
        as_text(body.get("status")),
        as_text(body.get("summary")),
        body.get("is_backgrounded") is True or as_dict(body.get("patch")).get("is_backgrounded") is True,
    )


def _control_request(body: Json) -> PublicMessage:
    request = as_dict(body.get("request"))
    return ControlRequest(body, as_text(body.get("request_id")), as_text(request.get("subtype")), request)


def _control_cancel(body: Json) -> PublicMessage:
    return ControlCancel(body, as_text(body.get("request_id")))


def _control_response(body: Json) -> PublicMessage:
    response = as_dict(body.get("response"))
    payload = response.get("response")
    return ControlResponse(
        body,
        as_text(response.get("request_id")),
        as_text(response.get("subtype")),
        payload if isinstance(payload, dict) else None,
        as_text(response.get("error")),
        as_text(response.get("error_code")),
    )


def _stream_event(body: Json) -> PublicMessage:
    return StreamEventMessage(body, as_dict(body.get("event")))


def _tool_progress(body: Json) -> PublicMessage:
    return ToolProgressMessage(body, as_text(body.get("tool_use_id")))


_PARSERS: dict[str, Callable[[Json], PublicMessage]] = {
    "assistant": _assistant,
    "user": _user,
    "result": _result,
    "system": _system,
    "control_request": _control_request,
    "control_cancel_request": _control_cancel,
    "control_response": _control_response,
    "stream_event": _stream_event,
    "tool_progress": _tool_progress,
}


MAX_EVENT = 4 * 1024 * 1024
"""Size limit of an event in bytes, all its lines together."""

_TEXT_FIELDS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}


@dataclass(frozen=True)
class MessageStart:
    """The model begins a message. `message_id` is empty if the event has none."""

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
    """Block number `index` grows by `text`. `field` names the field of the delta that holds the text (`text`,
    `thinking`, `partial_json`); it is empty for a delta without text, such as a signature."""

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
    """Return the typed event; None for an event of another type or a broken one."""
    kind, index = event.get("type"), event.get("index")
    if kind == "message_start":
        message = event.get("message")
        return MessageStart(str(message.get("id") or "") if isinstance(message, dict) else "")
    if kind == "message_stop":
        return MessageStop()
    if not isinstance(index, int):
        return None
    if kind == "content_block_start":
        return _block_start(index, event.get("content_block"))
    if kind == "content_block_delta":
        return _block_delta(index, event.get("delta"))
    return ContentBlockStop(index) if kind == "content_block_stop" else None


def _block_start(index: int, block: object) -> ContentBlockStart:
    if not isinstance(block, dict):
        return ContentBlockStart(index, "", None, "")
    tool_id = block.get("id")
    return ContentBlockStart(
        index, str(block.get("type")), tool_id if isinstance(tool_id, str) else None, str(block.get("name", ""))
    )


def _block_delta(index: int, delta: object) -> ContentBlockDelta:
    if not isinstance(delta, dict):
        return ContentBlockDelta(index, "", "")
    field = _TEXT_FIELDS.get(str(delta.get("type")), "")
    text = delta.get(field) if field else None
    return ContentBlockDelta(index, field, text) if isinstance(text, str) else ContentBlockDelta(index, "", "")


def with_text(message: Json, delta: ContentBlockDelta, text: str) -> Json:
    """Return a copy of a `stream_event` message whose delta carries `text` instead of `delta.text`."""
    event = message["event"]
    return {**message, "event": {**event, "delta": {**event["delta"], delta.field: text}}}
