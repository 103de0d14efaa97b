"""What a request to a model holds for the audit: the texts that no model has written, and the results of tool calls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

Json = dict[str, Any]

_MAX_TEXT = 4_000
_MAX_ID = 200
_MAX_BESIDE = 500  # characters of a part of the request that are told in full
_CONVERSATION = frozenset(("messages", "system", "model"))
_NOTED_ELSEWHERE = frozenset(("tool_result", "tool_use", "thinking", "redacted_thinking"))


@dataclass(frozen=True)
class SentResult:
    """The result of a tool call as a model gets it. `text` says how it ended and how large it is."""

    tool_use_id: str
    text: str


@dataclass(frozen=True)
class SentText:
    """A text that is not an answer of a model. `role` is whose it is said to be: `user`, `system` or another one;
    `assistant` for words that a model is to go on with; `request` for what else the request says."""

    role: str
    text: str


@dataclass(frozen=True)
class RequestContent:
    """`model` is the one that is asked, `asked` are the texts of the last user message, `others` all other texts that
    no model has written, in their order."""

    model: str = ""
    asked: tuple[str, ...] = ()
    others: tuple[SentText, ...] = ()
    results: tuple[SentResult, ...] = ()


def request_content(body: bytes) -> RequestContent:
    """Read the body of a request. What is not as it should be is passed over: the provider will refuse it."""
    try:
        request = json.loads(body, object_hook=_as_it_is)
    except (ValueError, RecursionError):
        return RequestContent()
    found = request.get("messages") if isinstance(request, dict) else None
    messages = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    if not messages:
        return RequestContent()
    said = [each for each in messages if each.get("role") != "assistant"]
    last = next((each for each in reversed(said) if each.get("role") == "user"), None)
    others = [SentText("system", text) for text in _texts(request.get("system"))]
    if beside := ", ".join(_beside(request)):
        others.append(SentText("request", beside))
    if messages[-1] not in said:
        others += [SentText("assistant", text) for text in _said(messages[-1])]
    others += [SentText(_role(each), text) for each in said if each is not last for text in _said(each)]
    results = tuple(_result(block) for each in said for block in _blocks(each) if block.get("type") == "tool_result")
    asked = tuple(_said(last)) if last is not None else ()
    return RequestContent(str(request.get("model", ""))[:_MAX_ID], asked, tuple(others), results)


def _as_it_is(found: Json) -> Json:
    """Return an object of a body. It is called for each, so that other threads run in between: a parser that reads 30
    MB in one go holds up the screen for most of a second."""
    return found


def shortened(text: str) -> str:
    """Return a text as it stands in the audit: a long one is cut, and what it is in whole is said."""
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]} … [cut: {len(text):,} characters, SHA-256 {text_digest(text)[:16]}]"


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _role(message: Json) -> str:
    return str(message.get("role", ""))[:_MAX_ID]


def _beside(request: Json) -> Iterator[str]:
    """Yield what a request says beside its conversation and plain numbers: a text could stand in any of it."""
    for name, value in request.items():
        if name not in _CONVERSATION and isinstance(value, (str, list, dict)) and value:
            text = json.dumps(value)
            shown = text if len(text) <= _MAX_BESIDE else f"{len(text):,} characters, {text_digest(text)[:16]}"
            yield f"{name[:_MAX_ID]}: {shown}"


def _said(message: Json) -> Iterator[str]:
    """Yield what a message says, apart from results of tool calls. Only the digest is told of pictures and files."""
    for block in _blocks(message):
        source = block.get("source")
        if block.get("type") == "text":
            yield str(block.get("text", ""))
        elif isinstance(source, dict) and source.get("type") == "base64":
            data = str(source.get("data", ""))
            yield f"({str(block.get('type'))[:_MAX_ID]} of {len(data):,} characters, {text_digest(data)[:16]})"
        elif block.get("type") not in _NOTED_ELSEWHERE:
            only_text = isinstance(source, dict) and source.get("type") == "text"
            kept = {name: value for name, value in block.items() if name != "cache_control"}  # the mark moves on
            yield str(source.get("data", "")) if only_text and isinstance(source, dict) else json.dumps(kept)


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    items = content if isinstance(content, list) else [content] if content else []
    return [each if isinstance(each, dict) else {"type": "text", "text": str(each)} for each in items]


def _result(block: Json) -> SentResult:
    content = "".join(_texts(block.get("content")))
    how = "error" if block.get("is_error") else "ok"
    return SentResult(
        str(block.get("tool_use_id", ""))[:_MAX_ID], f"{how}, {len(content):,} characters, {text_digest(content)[:16]}"
    )


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for each in content if isinstance(content, list) else ():
        yield (
            json.dumps(each)
            if isinstance(each, dict) and each.get("type") != "text"
            else str(each.get("text", "") if isinstance(each, dict) else each)
        )
