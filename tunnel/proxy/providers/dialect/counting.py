"""The size of a request, estimated: for providers that do not count tokens."""

from __future__ import annotations

from typing import Any

from ....wire.models import ESTIMATED
from ..answers.events import dump
from .content import blocks_of

Json = dict[str, Any]

_BYTES_PER_TOKEN = 4
_MEDIA = 2_000  # tokens of an image or a document


def estimated_tokens(asked: Json) -> int:
    """Return about how many input tokens a request has: system prompt, tools and messages."""
    tokens = 0
    for block in blocks_of(asked.get("system")):
        tokens += _tokens(block)
    tools = asked.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        tokens += _size(dump(tool))
    messages = asked.get("messages")
    for message in messages if isinstance(messages, list) else ():
        tokens += 4
        for block in blocks_of(message.get("content") if isinstance(message, dict) else None):
            tokens += _tokens(block)
    return max(1, tokens)


def estimated_count(asked: Json) -> Json:
    """Return what a provider that does not count answers to who asks for the size of a request."""
    return {"input_tokens": estimated_tokens(asked), ESTIMATED: True}


def _tokens(block: Json) -> int:
    kind = block.get("type")
    if kind in ("image", "document"):
        return _MEDIA
    if kind == "tool_result":
        return 10 + sum(_tokens(each) for each in blocks_of(block.get("content")))
    if kind in ("text", "thinking"):
        return _size(str(block.get(str(kind)) or ""))
    return 0 if kind == "redacted_thinking" else _size(dump(block))


def _size(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)
