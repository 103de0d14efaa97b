"""The bytes of a model request.

The body holds system, tools and messages in this order, and only then what may change from call to call. So each
request starts with the same bytes as the one before it, except for the cache marks, and the provider can cache them
(invariant 10)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ccb.tunnel.wire.models import AT_MOST, BYTES_PER_TOKEN, ESTIMATED, TOKENS, at_most, count, sent_name
from ccb.tunnel.wire.ndjson import dump, load, to_bytes

Json = dict[str, Any]

PATH = "/v1/messages"
_END = "],"  # of the messages
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # as an escape, and not behind an escaped backslash
_MAX_CACHE_MARKS = 4  # the API's limit for one request
_MESSAGE_MARKS = 2  # on the newest user message, and on the one before, which the last request marked


class Encodable(Protocol):
    """A message of the history, as a request needs it."""

    role: str

    def encoded(self) -> bytes: ...

    def encoded_with_cache_mark(self) -> bytes: ...


class RequestPrefix:
    """System blocks and tools of an agent, encoded once."""

    def __init__(self, system: Sequence[Json], tools: Sequence[Json]) -> None:
        used = sum(1 for block in system if "cache_control" in block)
        marked = [dict(tool) for tool in tools]
        if marked and used < _MAX_CACHE_MARKS:
            marked[-1]["cache_control"] = {"type": "ephemeral"}
            used += 1
        self.message_marks = max(0, min(_MESSAGE_MARKS, _MAX_CACHE_MARKS - used))
        blocks, declared = _array(system), _array(marked)
        self.system_size, self.tools_size = len(blocks), len(declared)
        self.encoded = to_bytes(f'{{"system":{blocks},"tools":{declared},"messages":[')


def body(
    prefix: RequestPrefix,
    messages: Sequence[Encodable],
    *,
    model: str,
    max_tokens: int,
    session_id: str,
    more: Mapping[str, object] = {},
) -> list[bytes]:
    """Return the body in pieces: a large history is not copied, and unchanged messages are not encoded again. `more`
    are further fields."""
    users = [i for i, message in enumerate(messages) if message.role == "user"]
    marked = set(users[len(users) - prefix.message_marks :]) if prefix.message_marks else set()
    pieces = [prefix.encoded]
    for i, message in enumerate(messages):
        if i:
            pieces.append(b",")
        pieces.append(message.encoded_with_cache_mark() if i in marked else message.encoded())
    user = hashlib.sha256(session_id.encode()).hexdigest()
    rest = {"model": sent_name(model), "max_tokens": max_tokens, "stream": True, "metadata": {"user_id": user}, **more}
    pieces.append(to_bytes(_END + dump(rest)[1:]))
    return pieces


def usage_of(pieces: Sequence[bytes], told: Mapping[str, Any]) -> Json:
    """Return the usage of the complete answer to this request: what the provider does not tell is what it can be at
    most, as the laptop counts it, too."""
    if told.get(ESTIMATED) != AT_MOST and count(told, TOKENS[3]) and any(count(told, name) for name in TOKENS[:3]):
        return dict(told)
    return at_most(told, sum(map(len, pieces)) // BYTES_PER_TOKEN, int(_rest(pieces)["max_tokens"]))


def _rest(pieces: Sequence[bytes]) -> Json:
    """Return the fields behind the messages, or all of a request in one piece."""
    text = pieces[-1].decode()
    rest = load("{" + text[len(_END) :] if text.startswith(_END) else text)
    assert isinstance(rest, dict)
    return rest


def without_stream(pieces: Sequence[bytes]) -> list[bytes]:
    """Return the body of a request that `body` has made, changed to ask for the answer in one piece."""
    whole = dump({**_rest(pieces), "stream": False})
    return [*pieces[:-1], to_bytes(_END + whole[1:] if pieces[-1].startswith(to_bytes(_END)) else whole)]


def headers(version: str, betas: Sequence[str] = ()) -> dict[str, str]:
    """Return the headers of a request. `betas` are the features of the API to switch on. The auth proxy on the laptop
    adds the credential."""
    return {
        **({"anthropic-beta": ",".join(betas)} if betas else {}),
        "content-type": "application/json",
        "accept": "text/event-stream",
        "anthropic-version": "2023-06-01",
        "user-agent": f"ccb/{version}",
    }


def sendable(item: Json) -> str:
    """Return an object as JSON text that each provider takes: a NUL becomes U+FFFD. Half surrogates are replaced where
    the text becomes bytes."""
    text = dump(item)
    return _NUL.sub("\\1\ufffd", text) if "\\u0000" in text else text


def _array(items: Sequence[Json]) -> str:
    return "[" + ",".join(sendable(item) for item in items) + "]"
