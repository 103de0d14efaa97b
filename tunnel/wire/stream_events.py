"""The raw streaming events of the Messages API, and those inside a `stream_event` message as typed values."""

from __future__ import annotations

from typing import Union

from .dataclass import dataclass
from .frames import Json

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
