"""The bytes of a model request.

Order of the body: system, tools, messages, and only then what may change from call to call, so that a request starts
with the very bytes of the one before it (invariant 10); the cache marks are the one difference."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

from ccb.tunnel.wire.ndjson import dump, to_bytes

Json = dict[str, Any]

PATH = "/v1/messages"
_MOST_CACHE_MARKS = 4  # the API's limit for one request
_MESSAGE_MARKS = 2  # the newest user message, and the one before: it was marked last time


class Encodable(Protocol):
    """A message of the history, as far as a request looks at it."""

    role: str

    def encoded(self) -> bytes: ...

    def encoded_with_cache_mark(self) -> bytes: ...


class RequestPrefix:
    """System and tools of a session, encoded once."""

    def __init__(self, system: Sequence[Json], tools: Sequence[Json]) -> None:
        used = sum(1 for block in system if "cache_control" in block)
        marked = [dict(tool) for tool in tools]
        if marked and used < _MOST_CACHE_MARKS:
            marked[-1]["cache_control"] = {"type": "ephemeral"}
            used += 1
        self.message_marks = max(0, min(_MESSAGE_MARKS, _MOST_CACHE_MARKS - used))
        self.encoded = to_bytes(f'{{"system":{_array(system)},"tools":{_array(marked)},"messages":[')


def body(
    prefix: RequestPrefix, messages: Sequence[Encodable], *, model: str, max_tokens: int, session_id: str
) -> list[bytes]:
    """The body in pieces: large histories are not joined here, and unchanged messages are not encoded again."""
    users = [i for i, message in enumerate(messages) if message.role == "user"]
    marked = set(users[len(users) - prefix.message_marks :]) if prefix.message_marks else set()
    pieces = [prefix.encoded]
    for i, message in enumerate(messages):
        if i:
            pieces.append(b",")
        pieces.append(message.encoded_with_cache_mark() if i in marked else message.encoded())
    user = hashlib.sha256(session_id.encode()).hexdigest()
    rest = {"model": model, "max_tokens": max_tokens, "stream": True, "metadata": {"user_id": user}}
    pieces.append(to_bytes("]," + dump(rest)[1:]))
    return pieces


def headers(version: str) -> dict[str, str]:
    """The request's headers. No credential: the proxy on the laptop adds it."""
    return {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "anthropic-version": "2023-06-01",
        "user-agent": f"ccb/{version}",
    }


def _array(items: Sequence[Json]) -> str:
    return "[" + ",".join(dump(item) for item in items) + "]"
