"""Writes the events of the Messages API, byte for byte as its own server would frame them."""

from __future__ import annotations

import json
from json.encoder import encode_basestring
from typing import Any

Json = dict[str, Any]


def dump(value: object) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encoded(text: str) -> bytes:
    """Return UTF-8. Half of a surrogate pair, which some servers send, becomes a replacement character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def event(kind: str, fields: Json) -> str:
    """Return one event of the stream."""
    return f"event: {kind}\ndata: {dump({'type': kind, **fields})}\n\n"


def message_start(message_id: str, model: str, usage: Json) -> str:
    """Return the event that begins an answer."""
    message: Json = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    return event("message_start", {"message": message})


def block_start(index: int, block: Json) -> str:
    """Return the event that begins a content block."""
    return event("content_block_start", {"index": index, "content_block": block})


def block_stop(index: int) -> str:
    """Return the event that ends a content block."""
    return f'event: content_block_stop\ndata: {{"type":"content_block_stop","index":{index}}}\n\n'


def delta(index: int, kind: str, field: str, text: str) -> str:
    """Return a piece of a content block: `kind` is its type, `field` the name of what it holds."""
    return (
        f'event: content_block_delta\ndata: {{"type":"content_block_delta","index":{index},'
        f'"delta":{{"type":"{kind}","{field}":{encode_basestring(text)}}}}}\n\n'
    )


def message_end(stop_reason: str, stop_sequence: str | None, usage: Json) -> str:
    """Return the two events that end an answer."""
    reason = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
    return event("message_delta", {"delta": reason, "usage": usage}) + event("message_stop", {})


def error_event(kind: str, message: str, usage: Json | None = None) -> str:
    """Return the event that ends a stream that has failed. `usage` is for the auth proxy, which counts it."""
    told = {"error": {"type": kind, "message": message}}
    return event("error", told if usage is None else {**told, "usage": usage})


PING = b'event: ping\ndata: {"type":"ping"}\n\n'
"""A sign of life while a model thinks in silence."""
