"""Reads an answer that was not streamed: one JSON message, turned into the events that a stream would have brought.

Some gateways in front of a model cannot stream, or cut each stream. So the rest of the worker knows streams only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Callable

from ccb.tunnel.wire.ndjson import dump

from ..ports import ModelResponse
from .errors import ModelError, Retry
from .stream import MAX_MESSAGE, decode_event

Json = dict[str, Any]

_DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}


async def whole_answer(response: ModelResponse, hear: Callable[[], None]) -> AsyncIterator[Json]:
    """Yield the events of the message in the body of `response`. Call `hear` at each sign of life. Raise ModelError."""
    pieces, size = [], 0
    async for chunk in response.body():
        hear()
        pieces.append(chunk)
        size += len(chunk)
        if size > MAX_MESSAGE:
            raise ModelError(f"the answer is longer than {MAX_MESSAGE} bytes", retry=Retry.NO)
    message = decode_event(b"".join(pieces).decode("utf-8", "replace"))
    for event in _events(message):
        yield event


def _events(message: Json) -> Iterator[Json]:
    content = message.get("content")
    if message.get("type") != "message" or not isinstance(content, list):
        raise ModelError(
            "the upstream answered with JSON that is not a message; is the base URL right?", retry=Retry.NO
        )
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(content):
        if not isinstance(block, dict):
            raise ModelError("the answer holds a content block that is not an object", retry=Retry.NO)
        yield from _block_events(index, block)
    delta = {"stop_reason": message.get("stop_reason"), "stop_sequence": message.get("stop_sequence")}
    yield {"type": "message_delta", "delta": delta, "usage": message.get("usage") or {}}
    yield {"type": "message_stop"}


def _block_events(index: int, block: Json) -> Iterator[Json]:
    start, deltas = dict(block), []
    kind, field = _DELTAS.get(str(block.get("type")), ("", ""))
    if field:
        start[field] = ""
        deltas.append({"type": kind, field: block.get(field)})
    if block.get("signature"):
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    if block.get("type") in ("tool_use", "server_tool_use"):
        start["input"] = {}
        deltas.append({"type": "input_json_delta", "partial_json": dump(block.get("input") or {})})
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
