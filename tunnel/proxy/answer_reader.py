"""Reads the answers of models on their way through the auth proxy, for the meter and the auditor.

The watching costs no time before a byte. An answer of many thousand events has a handful that say what is wanted: the
others are not parsed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

from ..providers.foreign_api import ForeignApi
from ..providers.json_fields import object_in, objects_in, text_in
from ..wire.dataclass import dataclass
from ..wire.messages import MAX_EVENT
from ..wire.ndjson import LineEnds
from .metering import CallMeter

MAX_INPUT = 256 * 1024
MAX_OPEN = 256
_CALLS = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))


@dataclass(frozen=True)
class WantedCall:
    """A tool call in the answer of a model. `input_json` is the text of its input, as far as it has come. `there` says
    that the provider runs it: its own tools, and those of MCP servers that the request names."""

    tool_use_id: str
    name: str
    input_json: str
    there: bool = False


class Auditor:
    """Is told of the calls of one auth proxy, in the order in which they happen. This one notes nothing."""

    def sent(self, call_id: str, body: bytes, digest: str, api: ForeignApi | None = None) -> None:
        """The provider has the whole request of a call, which asks in `api`, or in Messages."""

    def wanted(self, call_id: str, wanted: WantedCall) -> None:
        """A model has begun to ask for a tool call: its input may still be empty."""

    def wanted_whole(self, call_id: str, wanted: WantedCall) -> None:
        """The input of a tool call is complete."""

    def recording(self, call_id: str) -> Callable[[bytes], None] | None:
        """Return what takes the bytes of the answer, None if they are not kept."""
        return None

    def others_drove(self) -> None:
        """Another client has driven the session meanwhile."""


def _call(block: dict[str, Any]) -> WantedCall:
    return WantedCall(text_in(block, "id")[:200], text_in(block, "name")[:200], "", block.get("type") != "tool_use")


_MAX_WHOLE = 32 * 1024 * 1024  # bytes of an answer in one piece that are looked at: as many as a worker takes

_BLANK = b" \t\r\n\xef\xbb\xbf"

UNREADABLE = {"usage": "unreadable"}
_TELLING = (b"usage", b"error", b"start", b"stop")  # words of the events that are read

_INPUT = b"input_json_delta"


class TellingEvents:
    """Cuts a stream into events as the worker does, and gives those with one of `words`, up to `limit` bytes."""

    def __init__(self, words: Sequence[bytes], limit: int = MAX_EVENT) -> None:
        self.words = words
        self._limit = limit
        self.rest = bytearray()
        self._line_ends = LineEnds()
        self._skipping = False

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of the telling events that end with this chunk. `words` may change meanwhile."""
        chunk = self._line_ends.as_line_feeds(chunk)
        text, seen = chunk, 0
        if self.rest or not chunk.endswith(b"\n\n"):
            seen = max(0, len(self.rest) - 1)
            self.rest += chunk
            end = self.rest.rfind(b"\n\n", seen) + 2
            text = bytes(self.rest[:end]) if end > 1 else b""
            del self.rest[: len(text)]
        elif not any(map(chunk.__contains__, self.words)) and not self._skipping:
            return  # as most do
        if text:
            if self._skipping:
                text = text[text.index(b"\n\n", seen) + 2 :]
            self._skipping = False
            for event in text.split(b"\n\n"):
                if any(map(event.__contains__, self.words)):
                    yield from _data_of(event.split(b"\n"))
        if len(self.rest) > self._limit:
            del self.rest[:-1]
            self._skipping = True


def _data_of(lines: list[bytes]) -> Iterator[bytes]:
    data = b"\n".join(line[5:] for line in lines if line.startswith(b"data:"))
    if data:
        yield data
    if data and (b"event: error" in lines or b"event:error" in lines):
        yield b'{"type": "error"}'  # whatever it holds


class AnswerReader:
    """Reads one answer with these `headers`. `feed` gets its bytes, `close` is called after the last."""

    def __init__(self, call_id: str, meter: CallMeter, auditor: Auditor, headers: Mapping[str, str]) -> None:
        self._call_id = call_id
        self._meter = meter
        self._auditor = auditor
        self._record = auditor.recording(call_id)
        self._events = TellingEvents(_TELLING)
        self._streams = "event-stream" in headers.get("content-type", "")
        self._whole: bytearray | None = bytearray()  # None for a stream, and for what is too long
        self._open: dict[int, tuple[WantedCall, StringIO]] = {}  # tool calls whose input is not complete

    def feed(self, chunk: bytes) -> None:
        self._meter.arrived(len(chunk))
        if self._record is not None:
            self._record(chunk)
        if self._whole is not None and not self._whole:
            chunk = chunk.lstrip(_BLANK)
            if chunk and not chunk.startswith(b"{"):
                self._whole = None  # events, whatever the gateway calls them, or what nobody here can read
        if self._whole is not None and len(self._whole) + len(chunk) > _MAX_WHOLE:
            self._whole = None
        if self._whole is None or self._streams:
            self._read(chunk)
        if self._whole is not None:
            self._whole += chunk

    def close(self) -> None:
        """Read an answer in one piece or the end of a stream, and give up the tool calls whose stream was cut."""
        self._read(b"\n\n")
        if self._whole:
            self._take_whole(json_object(self._whole))
        for index in list(self._open):
            self._close_call(index)

    def _take_whole(self, message: dict[str, Any]) -> None:
        self._meter.event(message)
        for block in objects_in(message, "content"):
            if block.get("type") in _CALLS:
                self._note_whole(replace(_call(block), input_json=json.dumps(block.get("input"))[:MAX_INPUT]))

    def _note_whole(self, call: WantedCall) -> None:
        self._auditor.wanted(self._call_id, call)
        self._auditor.wanted_whole(self._call_id, call)

    def _read(self, chunk: bytes) -> None:
        for text in self._events.take(chunk):
            event = json_object(text)
            self._meter.event(event)
            index = event.get("index")
            if isinstance(index, int):
                self._note_call(index, event)
            self._events.words = (*_TELLING, _INPUT) if self._open else _TELLING

    def _note_call(self, index: int, event: dict[str, Any]) -> None:
        kind, block = event.get("type"), object_in(event, "content_block")
        if kind == "content_block_start" and block.get("type") in _CALLS:
            if len(self._open) < MAX_OPEN:
                whole = block.get("input")  # of some servers, without a delta
                call = replace(_call(block), input_json=json.dumps(whole)[:MAX_INPUT] if whole else "")
                self._open[index] = (call, StringIO())
                self._auditor.wanted(self._call_id, call)
        elif kind == "content_block_delta" and index in self._open:
            text = self._open[index][1]
            text.write(text_in(object_in(event, "delta"), "partial_json")[: MAX_INPUT - text.tell()])
        elif kind == "content_block_stop" and index in self._open:
            self._close_call(index)

    def _close_call(self, index: int) -> None:
        call, text = self._open.pop(index)
        self._auditor.wanted_whole(self._call_id, replace(call, input_json=text.getvalue() or call.input_json))


def json_object(text: bytes | bytearray) -> dict[str, Any]:
    """Return the object in a text; of one that cannot be read, what it told of its usage cannot be read either."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return UNREADABLE
    return found if isinstance(found, dict) else {}
