"""The stream of an answer: server-sent events become content blocks."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import MAX_EVENT
from ccb.tunnel.wire.model_facts import add_usage, count
from ccb.tunnel.wire.ndjson import MAX_DEPTH, LineEnds, dump, is_too_deep, load

from .model_request import ModelResponse
from .retry import ModelError, Retry, status_of


@dataclass(frozen=True)
class SseEvent:
    name: str
    data: str


class SseParser:
    """Incremental parser of server-sent events."""

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._line_ends = LineEnds()
        self._pending: list[bytes] = []  # pieces of the unfinished line
        self._size = 0  # bytes of the unfinished event, the unfinished line included
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events that `data` completes. Raise ModelError when one is over the limit."""
        *ended, rest = self._line_ends.as_line_feeds(data).split(b"\n")
        events = []
        for piece in ended:
            self._grow(piece)
            event = self._line(b"".join(self._pending))
            self._pending = []
            if event is not None:
                events.append(event)
        self._grow(rest)
        return events

    def _grow(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise ModelError(f"an event of the stream is longer than {self._limit} bytes", cut_stream=True)
        self._pending.append(piece)

    def _line(self, line: bytes) -> SseEvent | None:
        if not line:
            event = SseEvent(self._name, "\n".join(self._data)) if self._data else None
            self._name, self._data, self._size = "", [], 0
            return event
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"event":
            self._name = text
        elif field == b"data":
            self._data.append(text)
        elif not self._data and not self._name:
            self._size = 0  # a comment between two events belongs to neither
        return None


MAX_MESSAGE = 32 * 1024 * 1024  # characters of text and tool input
_MAX_INPUT_DEPTH = MAX_DEPTH - 50  # a laptop takes MAX_DEPTH with the message around
_OF_BLOCKS = ("content_block_start", "content_block_delta", "content_block_stop")
PUBLIC_EVENTS = frozenset(("message_start", *_OF_BLOCKS, "message_delta", "message_stop"))


@dataclass(frozen=True)
class MessageHead:
    id: str
    model: str
    usage: Json


@dataclass(frozen=True)
class BlockDone:
    """`broken` says why the input of a tool_use cannot be used. `bare`: its input is empty, perhaps cut."""

    index: int
    block: Json
    broken: str = ""
    bare: bool = False


CUT = {
    "max_tokens": "the answer reached its output limit",
    "model_context_window_exceeded": "the context window is full",
    "refusal": "the model broke off its answer",
}
_DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}
_PIECES = {**dict(_DELTAS.values()), "input_json_delta": "partial_json"}


class _Block:
    def __init__(self, start: Json) -> None:
        self.start = start
        self.kind = str(start.get("type", ""))
        self.parts: list[str] = []
        self.signature = str(start.get("signature") or "")

    def add(self, delta: Json) -> int:
        kind = str(delta.get("type"))
        if kind == "signature_delta":
            self.signature = str(delta.get("signature") or "")
        if kind not in _PIECES:
            return 0
        piece = delta.get(_PIECES[kind])
        if not isinstance(piece, str):
            raise _wrong(f"the answer holds a {kind} without text")
        self.parts.append(piece)
        return len(piece)

    def finish(self) -> tuple[Json, str]:
        """Return the block, and why its tool input cannot be used ("" when it can)."""
        text = "".join(self.parts)
        if self.kind == "text":
            return {"type": "text", "text": text}, ""
        if self.kind == "thinking":
            return {"type": "thinking", "thinking": text, "signature": self.signature}, ""
        if self.kind not in ("tool_use", "server_tool_use"):
            return dict(self.start), ""
        tool_input, broken = _tool_input(text, self.start.get("input"))
        name = self.start.get("name")
        named = {"id": str(self.start.get("id") or ""), "name": name if isinstance(name, str) else ""}
        return {"type": self.kind, **named, "input": tool_input}, broken


class MessageAssembler:
    """Assembles one answer. `feed` raises ModelError for an `error` event, and for events that are out of order."""

    def __init__(self) -> None:
        self.head: MessageHead | None = None
        self.usage: Json = {}
        self._output_told = False  # the number at the start is none
        self.stop_reason: str | None = None
        self.finished = False
        self._open: dict[int, _Block] = {}
        self.size = 0  # characters so far

    @property
    def open_indices(self) -> list[int]:
        return sorted(self._open)

    def feed(self, event: Json) -> BlockDone | None:
        """Take one event, and return the block that it finishes."""
        kind = event.get("type")
        failure = error_in(event)
        if failure is not None:
            raise failure
        if kind == "message_start":
            self._start(_object(event, "message"))
        elif kind not in PUBLIC_EVENTS:
            pass
        elif self.head is None:
            raise _wrong(f"the answer starts with {kind} instead of message_start")
        elif kind == "content_block_start":
            index = _index(event)
            if index in self._open:
                raise _wrong(f"the answer starts block {index} twice")
            self._open[index] = _Block(_object(event, "content_block"))
        elif kind == "content_block_delta":
            self.size += self._block(_index(event)).add(_object(event, "delta"))
            if self.size > MAX_MESSAGE:
                raise ModelError(f"the answer is longer than {MAX_MESSAGE} characters")
        elif kind == "content_block_stop":
            index = _index(event)
            block, broken = self._block(index).finish()
            del self._open[index]
            bare = block.get("type") == "tool_use" and not (broken or block["input"])
            return BlockDone(index, block, broken, bare)
        elif kind == "message_delta":
            self._end(event)
        elif self._open:
            raise _wrong("the answer ends inside a block")
        else:
            self.finished = True
        return None

    def final_usage(self) -> Json:
        return self.usage if self._output_told else {**self.usage, "output_tokens": 0}

    def partial_text(self) -> str:
        """Return the text of open blocks. A part of thinking or of a tool's input is useless."""
        return "".join(part for block in self._open.values() if block.kind == "text" for part in block.parts)

    def _start(self, message: Json) -> None:
        if self.head is not None:
            raise _wrong("the answer starts twice")
        add_usage(self.usage, message.get("usage"))
        message_id = str(message.get("id") or f"msg_{new_uuid().replace('-', '')}")
        self.head = MessageHead(message_id, str(message.get("model") or ""), dict(self.usage))

    def _block(self, index: int) -> _Block:
        block = self._open.get(index)
        if block is None:
            raise _wrong(f"the answer goes on with block {index}, which is not open")
        return block

    def _end(self, event: Json) -> None:
        usage = event.get("usage")
        add_usage(self.usage, usage)
        if isinstance(usage, dict):
            self._output_told = self._output_told or count(usage, "output_tokens") > 0
        delta = event.get("delta")
        reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        if isinstance(reason, str):
            if self._open:
                raise _wrong("the answer ends inside a block")
            self.stop_reason = reason


def decode_event(data: str, name: str = "") -> Json:
    """Return an event of this name. What stands in an `error` need not be JSON."""
    try:
        event, why = load(data), "an object"
    except (ValueError, RecursionError) as error:
        event, why = None, f"JSON ({error})"
    if not isinstance(event, dict) and name != "error":
        raise _wrong(f"the answer holds an event that is not {why}")
    event = event if isinstance(event, dict) else {"message": " ".join(data.split())[:1_000]}
    return {"type": "error", "error": event} if name == "error" and error_in(event) is None else event


def _tool_input(text: str, start: object) -> tuple[Json, str]:
    """Return the input of a tool_use and why it cannot be used. `start` counts when no deltas came."""
    if not text.strip():
        return (dict(start) if isinstance(start, dict) else {}), ""
    try:
        value = load(text)
    except (ValueError, RecursionError) as error:
        return {}, f"the input is not valid JSON ({error})"
    if not isinstance(value, dict):
        return {}, "the input is not a JSON object"
    if is_too_deep(value, _MAX_INPUT_DEPTH):  # a laptop would not take it
        return {}, f"the input is not JSON that can be used: it has more than {_MAX_INPUT_DEPTH} levels"
    return value, ""


def _index(event: Json) -> int:
    index = event.get("index")
    if not isinstance(index, int) or index < 0:
        raise _wrong(f"the answer holds a {event.get('type')} without an index")
    return index


def _object(event: Json, name: str) -> Json:
    value = event.get(name)
    if not isinstance(value, dict):
        raise _wrong(f"the answer holds a {event.get('type')} without {name}")
    return value


def _wrong(text: str) -> ModelError:
    return ModelError(text, wrong_format=True)


def error_in(event: Json) -> ModelError | None:
    """Return the error that an object in an answer with the status 200 stands for. Gateways wrap them in many ways."""
    error, kind = event.get("error"), event.get("type")
    if kind != "error" and (not error or kind in PUBLIC_EVENTS or kind == "message"):
        return None
    fields = error if isinstance(error, dict) else event
    said = next((fields[name] for name in ("message", "detail", "error") if isinstance(fields.get(name), str)), "")
    status, kind = _class_of(fields)
    text = said if said and kind in said else f"{said} ({kind})" if said else kind
    return ModelError(text, status=status or status_of(kind), error_type=kind)


def _class_of(error: Json) -> tuple[int | None, str]:
    named = [error.get(name) for name in ("type", "code", "status")]
    status = next((int(str(each)) for each in named if re.fullmatch("[45][0-9]{2}", str(each))), None)
    kinds = [each for each in named if isinstance(each, str) and each not in ("", "error", str(status))]
    return status, kinds[0] if kinds else "api_error"


async def whole_answer(response: ModelResponse) -> AsyncIterator[Json]:
    """Yield the events of an answer in one piece: some gateways cannot stream. Raise ModelError."""
    pieces, size = [], 0
    async for chunk in response.body():
        pieces.append(chunk)
        size += len(chunk)
        if size > MAX_MESSAGE:
            raise ModelError(f"the answer is longer than {MAX_MESSAGE} bytes", retry=Retry.NO)
    message = decode_event(b"".join(pieces).decode("utf-8", "replace"))
    failure = error_in(message)
    if failure is not None:
        raise failure
    content = message.get("content")
    if message.get("type") != "message" or not isinstance(content, list):
        shown = dump(message)[:300]
        text = f"the upstream answered with JSON that is not a message ({shown}); is the base URL right?"
        raise ModelError(text, retry=Retry.NO)
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(content):
        if not isinstance(block, dict):
            raise ModelError("the answer holds a content block that is not an object", retry=Retry.NO)
        cut = message.get("stop_reason") in CUT and block is content[-1]
        for event in _block_events(index, block, cut=cut):
            yield event
    delta = {"stop_reason": message.get("stop_reason"), "stop_sequence": message.get("stop_sequence")}
    yield {"type": "message_delta", "delta": delta, "usage": message.get("usage") or {}}
    yield {"type": "message_stop"}


def _block_events(index: int, block: Json, *, cut: bool) -> Iterator[Json]:
    start, deltas = dict(block), []
    kind, field = _DELTAS.get(str(block.get("type")), ("", ""))
    if field:
        start[field] = ""
        deltas.append({"type": kind, field: block.get(field)})
    if block.get("signature"):
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    if block.get("type") in ("tool_use", "server_tool_use"):
        start["input"] = {}
        whole = "{" if cut else dump(block.get("input") or {})  # of a cut call only a part of the input may be here
        deltas.append({"type": "input_json_delta", "partial_json": whole})
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
