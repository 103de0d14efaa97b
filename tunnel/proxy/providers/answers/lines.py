"""Splits the bytes of a server-sent stream into the data of its events."""

from __future__ import annotations

MAX_EVENT = 16 * 1024 * 1024
"""Bytes of one event. A line that is longer ends the answer."""


class EventTooLong(Exception):
    """An event is over the limit."""


class DataLines:
    """Takes bytes as they arrive, split anywhere, and returns the data of each event.

    Comments and names of events are left out: the data says what it is. Some servers send an event in one line without
    the empty line behind it, so each line of data stands alone; a JSON text over several lines would not be JSON in
    one of them, and no API of this kind sends that. An error in place of a stream may be printed over several lines.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._whole = bytearray()  # the lines so far of what is no stream

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that are complete now."""
        if b"\n" not in chunk:
            self._rest += chunk
            if len(self._rest) > MAX_EVENT:
                raise EventTooLong
            return []
        lines = (bytes(self._rest) + chunk).split(b"\n")
        self._rest = bytearray(lines.pop())
        if len(self._rest) > MAX_EVENT:
            raise EventTooLong
        return [data for line in lines if (data := self._data(line))]

    def end(self) -> list[bytes]:
        """Return the data of a last line without an end."""
        line, self._rest = bytes(self._rest), bytearray()
        data = self._data(line) or bytes(self._whole)
        return [data] if data else []

    def _data(self, line: bytes) -> bytes:
        if line.startswith(b"data:"):
            return line[5:].strip()
        if not (self._whole or line.lstrip()[:1] in (b"{", b"[")):
            return b""
        self._whole += line.strip() + b" "  # no stream at all, but an error or an answer in one piece
        if len(self._whole) > MAX_EVENT:
            raise EventTooLong
        if line[:1].isspace() or line.rstrip()[-1:] not in (b"}", b"]"):
            return b""
        data, self._whole = bytes(self._whole), bytearray()
        return data
