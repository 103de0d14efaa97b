"""Parses server-sent events from a stream of bytes."""

from __future__ import annotations

import re

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.stream_events import MAX_EVENT

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class SseError(Exception):
    """An event is over the size limit."""


@dataclass(frozen=True)
class SseEvent:
    """One event. `name` is its `event:` field ("" if absent); `data` are its `data:` lines, joined by newlines."""

    name: str
    data: str


class SseParser:
    """Incremental parser. It skips comments, `id` and `retry` fields, events without data, and an unfinished event at
    the end of the stream."""

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._pending: list[bytes] = []  # pieces of the unfinished line
        self._size = 0  # bytes of the unfinished event, the unfinished line included
        self._after_cr = False
        self._at_start = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events that `data` completes. Raise SseError when one is over the limit."""
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        pieces = _LINE_END.split(data)
        events = []
        for piece in pieces[:-1]:
            self._grow(piece)
            event = self._line(b"".join(self._pending))
            self._pending = []
            if event is not None:
                events.append(event)
        if pieces[-1]:
            self._grow(pieces[-1])
        return events

    def _grow(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise SseError(f"an event of the stream is longer than {self._limit} bytes")
        self._pending.append(piece)

    def _line(self, line: bytes) -> SseEvent | None:
        if self._at_start:
            self._at_start = False
            if line.startswith(_BOM):
                line = line[len(_BOM) :]
        if not line:
            return self._finish()
        field, _, value = line.partition(b":")
        text = (value[1:] if value.startswith(b" ") else value).decode("utf-8", "replace")
        if field == b"event":
            self._name = text
        elif field == b"data":
            self._data.append(text)
        elif not self._data and not self._name:
            self._size = 0  # a comment between two events belongs to neither
        return None

    def _finish(self) -> SseEvent | None:
        event = SseEvent(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data, self._size = "", [], 0
        return event
