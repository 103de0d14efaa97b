"""An answer in one piece, made of the events that a stream has."""

from __future__ import annotations

import json
from typing import Any

from .events import dump

Json = dict[str, Any]


def whole_message(stream: bytes) -> tuple[Json | None, Json | None]:
    """Return the message of a stream of Anthropic events, and the error that ended it: one of the two."""
    message: Json = {}
    blocks: list[Json] = []
    inputs: dict[int, list[str]] = {}
    for line in stream.split(b"\n"):
        if not line.startswith(b"data: "):
            continue
        event = json.loads(line[6:])
        kind = event["type"]
        if kind == "error":
            return None, event
        if kind == "message_start":
            message = event["message"]
        elif kind == "content_block_start":
            blocks.append(event["content_block"])
        elif kind == "content_block_delta":
            _add(blocks[event["index"]], event["delta"], inputs.setdefault(event["index"], []))
        elif kind == "message_delta":
            message |= event["delta"]
            message["usage"] = {**message["usage"], **event["usage"]}
    for index, parts in inputs.items():
        if parts:
            blocks[index]["input"] = _input("".join(parts))
    return {**message, "content": blocks}, None


def _add(block: Json, delta: Json, parts: list[str]) -> None:
    kind = delta["type"]
    if kind == "input_json_delta":
        parts.append(delta["partial_json"])
    elif kind == "signature_delta":
        block["signature"] = delta["signature"]
    else:
        field = "text" if kind == "text_delta" else "thinking"
        block[field] += delta[field]


def _input(text: str) -> Json | str:
    """Return the input of a call; the text itself if it is not JSON, so that nobody runs the call."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else dump(value)
