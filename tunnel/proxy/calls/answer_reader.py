"""Read what an answer has used and which tools it wants, while its bytes pass.

An answer of many thousand events has a handful that say this. They are looked for in whole chunks: what lies between
them is neither copied nor cut into lines. What an answer has used stands at its two ends, so only the start and the
stop of blocks are looked for in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..auditing import AuditedCalls, Auditor
from ..metering import CallMeter

_MAX_EVENT = 1024 * 1024
"""Bytes of one event that are looked at."""

_MAX_WHOLE = 32 * 1024 * 1024
"""Bytes of an answer in one piece that are looked at: as many as a worker takes. What cannot be read is paid for as an
answer that tells nothing."""

_BLANK = b" \t\r\n\xef\xbb\xbf"

_FIRST, _LAST = 64 * 1024, 16 * 1024
"""Bytes at the two ends of a stream in which its usage is looked for."""

_USAGE = (b"message_start", b"message_delta")
_ENDS = (b"message_delta", b"message_stop", b'"error"')
_BLOCK, _INPUT = b"content_block_st", b"input_json_delta"
"""The start and the stop of a block, and a part of the input of a tool call."""


class TellingLines:
    """Cuts a stream into lines, and gives those that hold one of `words`. A line longer than `limit` is dropped."""

    def __init__(self, words: Sequence[bytes], limit: int) -> None:
        self.words = words
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False

    @property
    def rest(self) -> bytes:
        """What has come since the last whole line."""
        return bytes(self._rest)

    def passes(self, chunk: bytes) -> bool:
        """Return whether a chunk is whole lines that tell nothing, as most are: then it need not be taken."""
        if self._rest or self._skipping or not chunk.endswith(b"\n"):
            return False
        return not any(map(chunk.__contains__, self.words))

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what follows `data:` in the telling lines that end with this chunk. `words` may change meanwhile."""
        end = chunk.rfind(b"\n") + 1
        start = 0
        if end and (self._rest or self._skipping):
            start = chunk.index(b"\n") + 1
            line = bytes(self._rest) + chunk[:start]
            self._rest.clear()
            if not self._skipping:
                yield from self._telling(line, 0, len(line))
            self._skipping = False
        if start < end:
            yield from self._telling(chunk, start, end)
        if end < len(chunk) and not self._skipping:
            self._rest += chunk[end:]
            if len(self._rest) > self._limit:
                self._rest.clear()
                self._skipping = True

    def _telling(self, text: bytes, at: int, end: int) -> Iterator[bytes]:
        """Look at the whole lines in text[at:end]."""
        places: dict[bytes, int] = {}  # where each word comes next
        while at < end:
            first = end
            for word in self.words:
                place = places.get(word, -1)
                if place < at:
                    place = text.find(word, at, end)
                    places[word] = place = end if place < 0 else place
                first = min(first, place)
            if first == end:
                return
            start = max(at, text.rfind(b"\n", at, first) + 1)
            stop = text.index(b"\n", first)
            at = stop + 1
            if text.startswith(b"data:", start):
                yield text[start + 5 : stop]


class AnswerReader:
    """Reads one answer with these `headers`. `feed` gets its bytes, `close` is called after the last."""

    def __init__(self, call_id: str, meter: CallMeter, auditor: Auditor, headers: Mapping[str, str]) -> None:
        self._meter = meter
        self._calls = AuditedCalls(call_id, auditor)
        self._record = auditor.recording(call_id)
        self._ends: Sequence[bytes] = _USAGE
        self._lines = TellingLines((*_USAGE, _BLOCK), _MAX_EVENT)
        self._count = 0
        self._last = bytearray()
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
            self._events(chunk)
        if self._whole is not None:
            self._whole += chunk

    def close(self) -> None:
        """Read an answer in one piece or the end of a stream, and give up the tool calls whose stream was cut."""
        for line in self._last.split(b"\n"):
            if line.startswith(b"data:") and any(map(line.__contains__, _ENDS)):
                self._meter.event(_object(line[5:]))
        message = _object(self._whole or b"")
        self._meter.event(message)
        self._calls.message(message)
        self._calls.cut()

    def _events(self, chunk: bytes) -> None:
        if not self._lines.passes(chunk):
            for text in self._lines.take(chunk):
                event = _object(text)
                self._meter.event(event)
                self._calls.event(event)
                self._choose()
        if self._ends:
            self._count += len(chunk)
            if self._count >= _FIRST:
                self._ends = ()
                self._choose()
        self._last += chunk[-_LAST:] if len(chunk) > _LAST else chunk
        if len(self._last) > 2 * _LAST:
            del self._last[:-_LAST]

    def _choose(self) -> None:
        self._lines.words = (*self._ends, _BLOCK, _INPUT) if self._calls.any_open else (*self._ends, _BLOCK)


def _object(text: bytes | bytearray) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
