"""Takes an answer as it arrives, for the worker, the meter and the auditor.

An answer of many thousand events has a handful that say this: the others are not parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..providers.api_errors import Refusal
from ..wire.messages import MAX_EVENT
from .auditing import AuditedCalls, Auditor
from .metering import CallMeter
from .policy import response_headers
from .proxied_call import ProxiedCall, ResponseHead

_MAX_WHOLE = 32 * 1024 * 1024
"""Bytes of an answer in one piece that are looked at: as many as a worker takes. What cannot be read is paid for as an
answer that tells nothing."""

_BLANK = b" \t\r\n\xef\xbb\xbf"

_UNREADABLE = {"usage": "unreadable"}
_TELLING = (b"usage", b"error", b"start", b"stop")
"""Words of the events that say what is used, and where the message and its blocks start and stop."""

_INPUT = b"input_json_delta"
"""A part of the input of a tool call."""


class TellingEvents:
    """Cuts a stream into events as the worker does, and gives those that hold one of `words`. One that is longer than
    `limit` is dropped."""

    def __init__(self, words: Sequence[bytes], limit: int = MAX_EVENT) -> None:
        self.words = words
        self._limit = limit
        self._rest = bytearray()
        self._skipping = self._after_cr = False

    @property
    def rest(self) -> bytes:
        """What has come since the last whole event."""
        return bytes(self._rest)

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of the telling events that end with this chunk. `words` may change meanwhile."""
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_line_feeds(chunk)
        text, seen = chunk, 0
        if self._rest or not chunk.endswith(b"\n\n"):
            seen = max(0, len(self._rest) - 1)
            self._rest += chunk
            end = self._rest.rfind(b"\n\n", seen) + 2
            text = bytes(self._rest[:end]) if end > 1 else b""
            del self._rest[: len(text)]
        elif not any(map(chunk.__contains__, self.words)) and not self._skipping:
            return  # as most do
        if text:
            if self._skipping:
                text = text[text.index(b"\n\n", seen) + 2 :]
            self._skipping = False
            yield from self._telling(text)
        if len(self._rest) > self._limit:
            del self._rest[:-1]
            self._skipping = True

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _telling(self, text: bytes) -> Iterator[bytes]:
        for event in text.split(b"\n\n"):
            if not any(map(event.__contains__, self.words)):
                continue
            lines = event.split(b"\n")
            data = b"\n".join(line[5:] for line in lines if line.startswith(b"data:"))
            if data:
                yield data
            if data and (b"event: error" in lines or b"event:error" in lines):
                yield b'{"type": "error"}'  # whatever it holds


class AnswerReader:
    """Reads one answer with these `headers`. `feed` gets its bytes, `close` is called after the last."""

    def __init__(self, call_id: str, meter: CallMeter, auditor: Auditor, headers: Mapping[str, str]) -> None:
        self._meter = meter
        self._calls = AuditedCalls(call_id, auditor)
        self._record = auditor.recording(call_id)
        self._events = TellingEvents(_TELLING)
        self._streams = "event-stream" in headers.get("content-type", "")
        self._whole: bytearray | None = bytearray()  # None for a stream, and for what is too long

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes."""
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
        message = _object(self._whole or b"{}")
        self._meter.event(message)
        self._calls.message(message)
        self._calls.cut()

    def _read(self, chunk: bytes) -> None:
        for text in self._events.take(chunk):
            event = _object(text)
            self._meter.event(event)
            self._calls.event(event)
            self._events.words = (*_TELLING, _INPUT) if self._calls.any_open else _TELLING


def _object(text: bytes | bytearray) -> dict[str, Any]:
    """Return the object in a text; of one that cannot be read, what it told of its usage cannot be read either."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return _UNREADABLE
    return found if isinstance(found, dict) else {}


class AnswerIntake:
    """Fills `call` with an answer of at most `limit` bytes. `answered` is called after each piece has gone
    to its reader."""

    def __init__(
        self, call: ProxiedCall, meter: CallMeter, auditor: Auditor, limit: int | None, answered: Callable[[], None]
    ) -> None:
        self._call = call
        self._meter = meter
        self._auditor = auditor
        self._limit = limit
        self._answered = answered
        self._received = 0
        self._reader: AnswerReader | None = None

    def begin(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Take the head."""
        head = ResponseHead(status, response_headers(headers))
        self._meter.answer(status)
        self._call.start(head)
        self._reader = AnswerReader(self._call.id, self._meter, self._auditor, head.headers)

    async def take(self, chunk: bytes) -> None:
        """Take a piece of the body, and wait until there is room for more. Raise Refusal if the answer is too long."""
        assert self._reader is not None
        self._received += len(chunk)
        if self._limit is not None and self._received > self._limit:
            text = f"the laptop's settings allow answers of {self._limit} bytes"
            raise Refusal(502, text, kind="laptop_not_allowed", headers={"x-should-retry": "false"})
        has_room = self._call.put(chunk)
        self._answered()
        self._reader.feed(chunk)
        if not has_room:
            await self._call.room()

    def close(self) -> None:
        """Note that no more comes."""
        if self._reader is not None:
            self._reader.close()
