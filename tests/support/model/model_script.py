"""What a scripted model says: replies as data, and the events of the Messages API they turn into.

A script is a list of replies; each is a JSON object with the fields of `Reply`, or a Python callable that is given the
recorded request and returns such an object, or None when it has nothing to say to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

Json = dict[str, Any]

_ODD_SIZES = (1, 3, 7, 2, 13, 5, 1, 31)
_FILL_PIECE = 16 * 1024


@dataclass(frozen=True)
class Recorded:
    """One request as it arrived. Header names are in lower case; `body` is None when it was not a JSON object."""

    number: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: Json | None
    size: int

    @property
    def messages(self) -> list[Json]:
        return list((self.body or {}).get("messages", []))

    @property
    def tool_results(self) -> list[Json]:
        content = self.messages[-1].get("content") if self.messages else None
        return [block for block in content if block.get("type") == "tool_result"] if isinstance(content, list) else []

    @property
    def tool_result_text(self) -> str:
        return "\n".join(content_text(block.get("content", "")) for block in self.tool_results)

    @property
    def last_user_text(self) -> str:
        return content_text(self.messages[-1].get("content", "")) if self.messages else ""

    @property
    def tool_names(self) -> list[str]:
        return [str(tool.get("name")) for tool in (self.body or {}).get("tools", [])]


def uses(name: str, **given: object) -> Json:
    return {"blocks": [{"type": "tool_use", "name": name, "input": given}]}


def content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text")


Predicate = Callable[[Recorded], bool]

_CONDITIONS: Mapping[str, Callable[[Recorded, Any], bool]] = {
    "tool_result_contains": lambda request, want: want in request.tool_result_text,
    "has_tool_result": lambda request, want: bool(request.tool_results) == want,
    "user_contains": lambda request, want: want in request.last_user_text,
}


@dataclass(frozen=True)
class Reply:
    """One answer of the model. Content: `text` is one text block; `blocks` is a list of {"type":"text","text"},
    {"type":"thinking","thinking", "signature"}, {"type":"tool_use","name","input","id"?,"raw"?} (`raw` replaces the
    JSON text of the input, for broken JSON), {"type":"fill","bytes"} (a text block of that size). `pieces` are the
    sizes, in characters and used in turn, in which texts and inputs are split over deltas (default: odd sizes). Time:
    `first_delay` before the response head, `delay` between events, in seconds. `stall_after` events nothing more is
    sent until `FakeModel.release()`. Failure: `status` not 200 answers an error with `error` {"type","message"} and
    `headers` (`retry_after` is short for that header); `cut_after` bytes of the body the connection is closed.
    `when` chooses: {"tool_result_contains", "has_tool_result", "user_contains"} (all must hold), or a Python
    predicate. `times` is how often the reply may be used; 0 is without end."""

    text: str | None = None
    blocks: list[Json] = field(default_factory=list)
    stop_reason: str | None = None
    usage: Json = field(default_factory=dict)
    model: str | None = None
    pieces: list[int] = field(default_factory=lambda: list(_ODD_SIZES))
    network_pieces: int = 0
    first_delay: float = 0
    delay: float = 0
    stall_after: int | None = None
    cut_after: int | None = None
    status: int = 200
    error: Json = field(default_factory=dict)
    retry_after: float | str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    when: Json | Predicate = field(default_factory=dict)
    times: int = 1

    @staticmethod
    def of(data: Mapping[str, Any]) -> Reply:
        """The reply of a JSON object. Raises ValueError that names what it does not know."""
        unknown = set(data) - {f.name for f in fields(Reply)}
        when = data.get("when", {})
        if isinstance(when, Mapping):
            unknown |= {f"when.{name}" for name in set(when) - set(_CONDITIONS)}
        if unknown:
            raise ValueError(f"a scripted reply has no field {', '.join(sorted(unknown))}: {dict(data)!r}")
        return Reply(**data)

    def fits(self, request: Recorded) -> bool:
        if callable(self.when):
            return self.when(request)
        return all(_CONDITIONS[name](request, want) for name, want in self.when.items())

    def content(self, number: int) -> list[Json]:
        """The content blocks, tool ids filled in; `number` (of the request) makes them unique."""
        blocks = [dict(block) for block in self.blocks]
        if self.text is not None:
            blocks.insert(0, {"type": "text", "text": self.text})
        for index, block in enumerate(blocks):
            if block["type"] == "tool_use":
                block.setdefault("id", f"toolu_{number:04d}_{index:02d}")
                block.setdefault("input", {})
            elif block["type"] == "thinking":
                block.setdefault("signature", f"sig-{number}-{index}")
        return blocks

    def final_stop_reason(self) -> str:
        if self.stop_reason:
            return self.stop_reason
        return "tool_use" if any(block["type"] == "tool_use" for block in self.blocks) else "end_turn"


ScriptEntry = Mapping[str, Any] | Callable[[Recorded], Mapping[str, Any] | None]


class Script:
    """Replies in order: a request gets the first one that still has uses left and fits."""

    def __init__(self, entries: list[ScriptEntry]) -> None:
        self._entries: list[tuple[Reply | Callable[[Recorded], Mapping[str, Any] | None], list[int]]] = []
        self.add(*entries)

    def add(self, *entries: ScriptEntry) -> None:
        for entry in entries:
            if callable(entry):
                self._entries.append((entry, [0]))
            else:
                self._entries.append((Reply.of(entry), [0]))

    def choose(self, request: Recorded) -> Reply | None:
        """The reply to `request`, marked as used; None when the script has none."""
        for entry, used in self._entries:
            if isinstance(entry, Reply):
                if (entry.times == 0 or used[0] < entry.times) and entry.fits(request):
                    used[0] += 1
                    return entry
            else:
                data = entry(request)
                if data is not None:
                    used[0] += 1
                    return Reply.of(data)
        return None


def message(reply: Reply, request: Recorded) -> Json:
    blocks = []
    for block in reply.content(request.number):
        if block["type"] == "fill":
            block = {"type": "text", "text": "x" * int(block["bytes"])}
        block.pop("raw", None)
        blocks.append(block)
    return {
        **_skeleton(reply, request),
        "content": blocks,
        "stop_reason": reply.final_stop_reason(),
        "usage": _usage(reply, request),
    }


def events(reply: Reply, request: Recorded) -> Iterator[tuple[str, Json]]:
    usage = _usage(reply, request)
    start = {**_skeleton(reply, request), "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": start}
    for index, block in enumerate(reply.content(request.number)):
        opening, deltas = _block_stream(block, reply.pieces)
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": opening}
        if index == 0:
            yield "ping", {"type": "ping"}
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": reply.final_stop_reason(), "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": stop, "usage": usage}
    yield "message_stop", {"type": "message_stop"}


def _skeleton(reply: Reply, request: Recorded) -> Json:
    asked = (request.body or {}).get("model")
    return {
        "id": f"msg_{request.number:04d}",
        "type": "message",
        "role": "assistant",
        "model": reply.model or asked or "fake-model",
        "stop_sequence": None,
    }


def _usage(reply: Reply, request: Recorded) -> Json:
    default = {
        "input_tokens": max(1, request.size // 4),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": max(1, len(json.dumps(reply.blocks) + (reply.text or "")) // 4),
    }
    return {**default, **reply.usage}


def _block_stream(block: Json, sizes: list[int]) -> tuple[Json, Iterator[Json]]:
    kind = block["type"]
    if kind == "text":
        return {"type": "text", "text": ""}, ({"type": "text_delta", "text": p} for p in _split(block["text"], sizes))
    if kind == "fill":
        return {"type": "text", "text": ""}, _fill(int(block["bytes"]))
    if kind == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}, _thinking(block, sizes)
    if kind == "tool_use":
        text = block.get("raw")
        if text is None:
            text = json.dumps(block["input"], ensure_ascii=False)
        opening = {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}
        return opening, ({"type": "input_json_delta", "partial_json": p} for p in ("", *_split(text, sizes)))
    return block, iter(())


def _thinking(block: Json, sizes: list[int]) -> Iterator[Json]:
    for piece in _split(block["thinking"], sizes):
        yield {"type": "thinking_delta", "thinking": piece}
    yield {"type": "signature_delta", "signature": block["signature"]}


def _fill(size: int) -> Iterator[Json]:
    for start in range(0, size, _FILL_PIECE):
        yield {"type": "text_delta", "text": "x" * min(_FILL_PIECE, size - start)}


def _split(text: str, sizes: list[int]) -> Iterator[str]:
    start = turn = 0
    while start < len(text):
        size = sizes[turn % len(sizes)]
        yield text[start : start + size]
        start += size
        turn += 1
