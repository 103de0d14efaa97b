"""The public stream-json objects as typed messages, with the fields that this laptop reads.

Unknown kinds and broken shapes become `UnknownMessage`. Text is neutralised where it is shown, not here. Source: the
stream-json protocol as observed (sections 5 and 6 of the reference).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Tag, TypeAdapter, ValidationError

from ccb.tunnel.plain_text import one_line

from .images import PictureData, image_words, pictures_of

Json = dict[str, Any]


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class TextBlock(_Message):
    type: Literal["text"]
    text: str


class ThinkingBlock(_Message):
    type: Literal["thinking"]
    thinking: str


class ToolUseBlock(_Message):
    type: Literal["tool_use"]
    id: str
    name: str
    input: Json


class ToolResultBlock(_Message):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[Json] = ""
    is_error: bool = False

    def text(self) -> str:
        """Return the text of the result. An image appears in words, other blocks as `[document]` and the like."""
        return self.content if isinstance(self.content, str) else "\n".join(map(_block_text, self.content))

    def pictures(self) -> Sequence[PictureData]:
        """Return the images of the result."""
        return () if isinstance(self.content, str) else pictures_of(self.content)


def _block_text(block: Json) -> str:
    kind = block.get("type", "block")
    if kind == "image":
        return image_words(block)
    return str(block.get("text", "")) if kind == "text" else f"[{kind}]"


class OtherBlock(_Message):
    type: str


def _block_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if kind in ("text", "thinking", "tool_use", "tool_result") else "other"


Block = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[ToolResultBlock, Tag("tool_result")]
    | Annotated[OtherBlock, Tag("other")],
    Discriminator(_block_kind),
]


class SystemInit(_Message):
    """First message of every turn."""

    type: Literal["system"]
    subtype: Literal["init"]
    session_id: str
    cwd: str
    model: str
    permissionMode: str
    sandbox: str = ""  # the cage in force, in words
    git_branch: str = ""
    tools: list[str] = []


class SystemNote(_Message):
    """Any other system message, with the fields that this laptop uses."""

    type: Literal["system"]
    subtype: str
    status: str | None = None
    permissionMode: str | None = None
    sandbox: str | None = None
    state: str | None = None
    content: str | None = None
    level: str | None = None
    compact_metadata: dict[str, Any] | None = None
    compact_result: str | None = None
    tool_name: str | None = None
    tool_use_id: str | None = None


class TaskNote(_Message):
    """What the worker says about a task beside the conversation, such as a sub-agent: it starts, goes on, or ends."""

    type: Literal["system"]
    subtype: Literal["task_started", "task_progress", "task_notification"]
    task_id: str
    tool_use_id: str = ""
    agent_id: str = ""
    subagent_type: str = ""
    usage: Json = {}
    description: str = ""
    summary: str = ""
    status: str = ""
    is_backgrounded: bool = False


class ApiRetry(_Message):
    """The model is going to be asked again."""

    type: Literal["system"]
    subtype: Literal["api_retry"]
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: float | None = None
    error_status: int | None = None
    api_error_type: str | None = None
    error: str | None = None
    message: str | None = None


class ModelSilent(_Message):
    """The model says nothing, and is asked again unless it goes on; without `retry_in_ms`, it has gone on."""

    type: Literal["system"]
    subtype: Literal["model_silent"]
    silent_ms: float | None = None
    retry_in_ms: float | None = None


class ApiMessage(_Message):
    id: str = ""
    role: str
    model: str = ""
    content: list[Block]
    usage: Json | None = None
    stop_reason: str | None = None


class Assistant(_Message):
    """One finished content block of a model message."""

    type: Literal["assistant"]
    message: ApiMessage
    uuid: str = ""
    parent_tool_use_id: str | None = None
    error: str | None = None
    is_api_error_message: bool = False
    aborted: bool = False


class UserContent(_Message):
    role: Literal["user"]
    content: str | list[Block]


class User(_Message):
    """Tool results and notes from the worker, and prompts of the person (live and in a replay)."""

    type: Literal["user"]
    message: UserContent
    uuid: str = ""
    isReplay: bool = False
    isSynthetic: bool = False
    tool_use_result: Any = None


class StreamEvent(_Message):
    """One raw API event (`--include-partial-messages`)."""

    type: Literal["stream_event"]
    event: Json


class ToolProgress(_Message):
    """Live output of a running tool. `output` is the end of what the tool has printed so far; each message replaces the
    one before."""

    type: Literal["tool_progress"]
    tool_use_id: str
    tool_name: str
    elapsed_time_seconds: float = 0
    output: str = ""
    total_bytes: int = 0
    heartbeat: bool = False  # a sign of life, which says nothing about the output


class Result(_Message):
    """The result of a turn: exactly one at its end."""

    type: Literal["result"]
    subtype: str
    is_error: bool
    duration_ms: int = 0
    num_turns: int = 0
    result: str | None = None
    errors: list[str] = []
    total_cost_usd: float = 0
    usage: Json = {}
    modelUsage: Json = {}
    permission_denials: list[Json] = []
    terminal_reason: str | None = None
    session_id: str = ""


class ElicitationFields(_Message):
    """What an MCP server asks the person for: the fields of `elicitation`."""

    mcp_server_name: str = ""
    message: str = ""
    mode: str = "form"
    url: str | None = None
    requested_schema: Any = None


class ControlRequestBody(ElicitationFields):
    """What the worker asks: the fields of `can_use_tool`, or those of `elicitation`."""

    subtype: str
    tool_name: str = ""
    input: Json = {}
    tool_use_id: str = ""
    description: str | None = None
    permission_suggestions: list[Json] = []
    blocked_path: str | None = None
    decision_reason: str | None = None
    decision_reason_type: str | None = None
    agent: str | None = None  # the sub-agent that asks; of the worker, beside the public fields
    file_change: Any = None  # the same
    sandbox: str | None = None


class ControlRequest(_Message):
    """The worker asks the client: `can_use_tool`, or `elicitation` for an MCP server."""

    type: Literal["control_request"]
    request_id: str
    request: ControlRequestBody


class ControlResponseBody(_Message):
    subtype: str
    request_id: str
    response: Json | None = None
    error: str | None = None


class ControlResponse(_Message):
    type: Literal["control_response"]
    response: ControlResponseBody


class ControlCancelRequest(_Message):
    type: Literal["control_cancel_request"]
    request_id: str


class UnknownMessage(_Message):
    """A message that this version does not know or cannot read. The REPL hides it; a headless run passes it through."""

    type: str = "unknown"


def _message_kind(value: Any) -> str:
    if not isinstance(value, dict):
        return "unknown"
    kind = value.get("type")
    if kind == "system":
        subtype = value.get("subtype")
        if subtype in ("task_started", "task_progress", "task_notification"):
            return "task"
        return subtype if subtype in ("init", "api_retry", "model_silent") else "note"
    return kind if isinstance(kind, str) and kind in _KINDS else "unknown"


_KINDS = frozenset(
    (
        "assistant",
        "user",
        "stream_event",
        "tool_progress",
        "result",
        "control_request",
        "control_response",
        "control_cancel_request",
    )
)

Message = Annotated[
    Annotated[SystemInit, Tag("init")]
    | Annotated[SystemNote, Tag("note")]
    | Annotated[TaskNote, Tag("task")]
    | Annotated[ApiRetry, Tag("api_retry")]
    | Annotated[ModelSilent, Tag("model_silent")]
    | Annotated[Assistant, Tag("assistant")]
    | Annotated[User, Tag("user")]
    | Annotated[StreamEvent, Tag("stream_event")]
    | Annotated[ToolProgress, Tag("tool_progress")]
    | Annotated[Result, Tag("result")]
    | Annotated[ControlRequest, Tag("control_request")]
    | Annotated[ControlResponse, Tag("control_response")]
    | Annotated[ControlCancelRequest, Tag("control_cancel_request")]
    | Annotated[UnknownMessage, Tag("unknown")],
    Discriminator(_message_kind),
]

_adapter: TypeAdapter[Message] = TypeAdapter(Message)


def parse_message(body: Json) -> Message:
    """Return the typed message, or `UnknownMessage` for an object that fits no type."""
    try:
        return _adapter.validate_python(body)
    except ValidationError:
        return UnknownMessage(type=str(body.get("type", "unknown")))


_MAX_QUOTED = 500
_WHY = {
    "rate_limit": "Too many requests to the model",
    "overloaded": "The model is overloaded",
    "server_error": "The model's server failed",
}


def retry_text(note: ApiRetry) -> str:
    """Return a sentence for the person: why the model is asked again, and when."""
    name = note.error if note.error not in (None, "unknown") else ""
    if note.error_status is None and note.message:  # what the worker or the auth proxy says itself
        said = one_line(note.message)[:_MAX_QUOTED]
        why = said[:1].upper() + said[1:]
    elif name in _WHY:
        why = _WHY[name]
    elif name:
        why = f"The model did not answer ({one_line(name).replace('_', ' ')})"
    else:  # without a status there was no answer at all, as when the laptop was away
        why = "The model did not answer" if note.error_status else "The model's answer did not arrive"
    status = f" (HTTP {note.error_status})" if note.error_status else ""
    delay = (note.retry_delay_ms or 0) / 1000
    when = f" in {delay:.0f} s" if delay >= 1 else ""
    last = "last " if note.attempt == note.max_retries else ""
    return f"{why}{status}; {last}try {note.attempt} of {note.max_retries}{when}"


def silence_text(note: ModelSilent) -> str:
    """Return a sentence for the person about a model that says nothing; "" if it has gone on."""
    if note.retry_in_ms is None:
        return ""
    silent, left = (note.silent_ms or 0) / 1000, note.retry_in_ms / 1000
    return f"The model has said nothing for {silent:.0f} s; it is asked again in {left:.0f} s"
