"""What a request to a model holds for the audit: the newest user text, and the results of tool calls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

Json = dict[str, Any]

_MAX_TEXT = 4_000
_MAX_ID = 200


@dataclass(frozen=True)
class SentResult:
    """The result of a tool call as a model gets it. `text` says how it ended and how large it is."""

    tool_use_id: str
    text: str


@dataclass(frozen=True)
class RequestContent:
    """`model` is the one that is asked, `asked` the text of the last user message, cut to 4,000 characters."""

    model: str = ""
    asked: str = ""
    results: tuple[SentResult, ...] = ()


def request_content(body: bytes) -> RequestContent:
    """Read the body of a request. What is not as it should be is passed over: the provider will refuse it."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return RequestContent()
    messages = request.get("messages") if isinstance(request, dict) else None
    users = [each for each in messages if _is_user(each)] if isinstance(messages, list) else []
    last = _blocks(users[-1]) if users else []
    texts = [str(block.get("text", "")) for block in last if block.get("type") == "text"]
    results = tuple(_result(block) for user in users for block in _blocks(user) if block.get("type") == "tool_result")
    return RequestContent(
        str(request.get("model", ""))[:_MAX_ID] if users else "", "\n".join(texts)[:_MAX_TEXT], results
    )


def _is_user(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") == "user"


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def _result(block: Json) -> SentResult:
    content = "".join(_texts(block.get("content")))
    how = "error" if block.get("is_error") else "ok"
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return SentResult(str(block.get("tool_use_id", ""))[:_MAX_ID], f"{how}, {len(content):,} characters, {digest}")


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for each in content if isinstance(content, list) else ():
        yield (
            json.dumps(each)
            if isinstance(each, dict) and each.get("type") != "text"
            else str(each.get("text", "") if isinstance(each, dict) else each)
        )
