"""Lines of JSON, with limits on size, depth and count. Only the bytes of a channel follow their line as they are.

A frame that does not fit into a line is split into `part` lines ({"t":"part","id":…,"i":…,"n":…,"d":…}), up to
MAX_FRAME bytes; other frames may come between them. It is measured before it is parsed: three bytes of text (`[],`)
become more than 60 bytes in memory."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from .frames import CHUNK, CallData, ChannelData, Frame, FrameError, Json, fits, frame_from_dict, frame_to_dict

MAX_LINE = 256 * 1024  # length of the longest line in bytes, with its newline
MAX_FRAME = 32 * 1024 * 1024  # size of the largest frame in bytes, after its parts are joined

_MEMORY_OF_LINE = 24  # bytes of memory for each byte of a line, at most: `[],` is a list and a place in another

_MEMORY_OF_VALUE = 120  # bytes of memory for each value of a frame of many lines, at most, apart from its text
_MAX_OPEN_PARTS = 16
_MAX_HEAD = 512  # bytes before the base64 of a frame
_PART_CHARS = 40 * 1024  # a character is at most 6 bytes once it is escaped
_ESCAPED = ('"', "\\", *map(chr, range(32)))  # in JSON. Each search for one takes next to no time
_BASE64 = b'"b64":"'  # of the last field of a frame that carries bytes
_OTHER_LINE_ENDS = "\u0085\u2028\u2029"
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _finite(text: str) -> float:
    """Raise ValueError for a number that JSON lacks: it could be read, but neither printed nor sent on."""
    value = float(text)
    if value - value != 0:  # of infinity and NaN the difference is NaN
        raise ValueError(f"{text[:40]} is not a finite number")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def load(text: str) -> object:
    """Raise ValueError for what is not JSON or has infinite numbers, RecursionError for what is too deep."""
    return _DECODER.decode(text)


def dump(data: Json) -> str:
    """Return an object as compact JSON, the spelling of the wire, the journal and stdout."""
    return _ENCODER.encode(data)


def dump_line(data: Json) -> str:
    """Return an object as a line for other programs, some of which end lines at more characters than `\\n`."""
    text = dump(data)
    for end in _OTHER_LINE_ENDS:
        text = text.replace(end, f"\\u{ord(end):04x}")
    return text


def to_bytes(text: str) -> bytes:
    """Encode text as UTF-8. Lone surrogates, as in file names, become `?`."""
    return text.encode("utf-8", "replace")


def encode_frame(frame: Frame, part_id: int = 0) -> list[bytes]:
    """Return the lines of a frame. Large frames that are sent at the same time need different `part_id`s."""
    if isinstance(frame, ChannelData):
        return [to_bytes(dump({**frame_to_dict(frame), "data": len(frame.data)})) + b"\n" + frame.data]
    if isinstance(frame, CallData) and not any(each in frame.b64 for each in _ESCAPED):
        text = dump({**frame_to_dict(frame), "b64": ""})[:-2] + frame.b64 + '"}'
    else:
        text = dump(frame_to_dict(frame))
    line = to_bytes(text) + b"\n"
    if len(line) <= MAX_LINE:
        return [line]
    if len(line) > MAX_FRAME:
        raise FrameError(f"a frame of {len(line)} bytes is over the limit of {MAX_FRAME}")
    count_values(text)
    pieces = [text[i : i + _PART_CHARS] for i in range(0, len(text), _PART_CHARS)]
    return [
        to_bytes(dump({"t": "part", "id": part_id, "i": i, "n": len(pieces), "d": piece})) + b"\n"
        for i, piece in enumerate(pieces)
    ]


class LineSplitter:
    """Cuts a byte stream into lines, at `\\n` only. A line over the limit is refused at once. Who takes a line may set
    `due`: that many bytes come behind it as they are, and are yielded in place of the next line."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.due: int | None = None
        self._limit = limit
        self._pending = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that `data` completes, without their newlines. Raise FrameError."""
        self._pending += data
        while (piece := self._next()) is not None:
            yield piece

    def _next(self) -> bytes | None:
        """Return the next piece, None while it is not whole. Raise FrameError."""
        end, newline = self.due, b""
        if end is None:
            end, newline = self._pending.find(b"\n", self._searched), b"\n"
            self._searched = len(self._pending)
            if (end if end >= 0 else self._searched) >= self._limit:
                raise FrameError(f"a line is longer than {self._limit} bytes", bytes(self._pending[:80]))
        if not 0 <= end <= len(self._pending):
            return None
        with memoryview(self._pending) as pending:
            piece = bytes(pending[:end])
        del self._pending[: end + len(newline)]
        self.due, self._searched = None, 0
        return piece

    def rest(self) -> bytes:
        return bytes(self._pending)


class LineEnds:
    """Makes one kind of line end of the three that server-sent events have (WHATWG HTML, 9.2.6). The worker and the
    proxy read answers through it, so that neither sees an event that the other does not."""

    def __init__(self) -> None:
        self._after_cr = False

    def as_line_feeds(self, chunk: bytes) -> bytes:
        if not chunk or not (self._after_cr or b"\r" in chunk):
            return chunk
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parsed(line: bytes, whole: str | None = None) -> object:
    """Parse a line. Base64 that ends it is not read as JSON, which takes longer than to decode it."""
    start = line.find(_BASE64, 0, _MAX_HEAD) + len(_BASE64)
    data = line[start:-2] if start >= len(_BASE64) and whole is None and line.endswith(b'"}') else b""
    if data and not (b'"' in data or b"\\" in data) and data.isascii():
        head = _parsed(line[:start] + b'"}')
        return {**head, "b64": data.decode("ascii")} if isinstance(head, dict) else head
    try:
        return load(line.decode("utf-8") if whole is None else whole)
    except ValueError as error:
        raise FrameError(f"a line is not JSON ({error})", line) from None
    except RecursionError:
        raise FrameError("a line is nested too deeply", line) from None


class FrameDecoder:
    """Turns bytes into typed frames. `memory` is what the one that was yielded last may take, at most."""

    def __init__(self) -> None:
        self.memory = 0
        self._lines = LineSplitter()
        self._head: Json | None = None  # of a frame whose bytes come next
        self._parts: dict[int, list[str]] = {}
        self._part_bytes = 0

    def drop(self) -> None:
        """Let the unfinished parts go: an error may keep all of this for long."""
        for pieces in self._parts.values():
            pieces.clear()
        self._parts.clear()

    def feed(self, data: bytes) -> Iterator[Frame]:
        for line in self._lines.feed(data):
            head, self._head = self._head, None
            frame = self._decode(line) if head is None else frame_from_dict({**head, "data": line})
            if frame is not None:
                yield frame

    def _decode(self, line: bytes) -> Frame | None:
        if not line.strip():
            return None
        data = _parsed(line)
        self.memory = _MEMORY_OF_LINE * len(line)
        if isinstance(data, dict) and data.get("t") == ChannelData.t:
            size: Any = data.get("data")
            if fits("int", size) and size <= CHUNK:
                self._head, self._lines.due = data, size
                return None
        if not (isinstance(data, dict) and data.get("t") == "part"):
            return frame_from_dict(data)
        whole = self._join(data, line)
        if whole is None:
            return None
        if len(whole) > MAX_LINE:
            self.memory = sys.getsizeof(whole) + _MEMORY_OF_VALUE * count_values(whole)
        else:
            self.memory = _MEMORY_OF_LINE * len(whole)
        return frame_from_dict(_parsed(line, whole))

    def _join(self, part: Json, line: bytes) -> str | None:
        number, index, total, text = part.get("id"), part.get("i"), part.get("n"), part.get("d")
        if not (
            isinstance(number, int) and isinstance(index, int) and isinstance(total, int) and isinstance(text, str)
        ):
            raise FrameError("a part has a field of the wrong type", line)
        pieces = self._parts.setdefault(number, [])
        if index != len(pieces) or not 0 <= index < total:
            raise FrameError("the parts of a frame are out of order", line)
        pieces.append(text)
        self._part_bytes += max(len(line), sys.getsizeof(text))  # one character can make four bytes of each
        if self._part_bytes > MAX_FRAME or len(self._parts) > _MAX_OPEN_PARTS:
            raise FrameError(f"unfinished parts are over the limit of {MAX_FRAME} bytes", line)
        if len(pieces) < total:
            return None
        del self._parts[number]
        whole = "".join(pieces)
        self._part_bytes = sum(len(piece) for open_part in self._parts.values() for piece in open_part)
        return whole


MAX_VALUES = 200_000  # values (objects, lists, texts, numbers and so on) in one frame of many lines

MAX_DEPTH = 200
"""Levels of objects and lists inside each other in one frame of many lines, and in what a laptop takes from a host: the
stack of Python ends at about a thousand."""

_BRACKET = re.compile(r"[\[{\]}]")


def count_values(text: str) -> int:
    """Return how many values a JSON text holds. Raise FrameError if they are more than MAX_VALUES, or nested deeper
    than MAX_DEPTH. Strings are skipped at the speed of a search. Text that is not JSON has any number."""
    if "\\" in text:  # without escapes, every quote begins or ends a string
        text = text.replace("\\\\", "").replace('\\"', "")
    values = opened = 0
    pieces = []
    for piece in _outside_strings(text):
        brackets = piece.count("[") + piece.count("{")
        values += brackets + piece.count(",")
        pieces.append(piece)
        if values > MAX_VALUES or len(pieces) > 2 * MAX_VALUES:  # a value and its name are two strings at most
            raise FrameError(f"a frame has more than {MAX_VALUES} values")
        opened += brackets
    if opened > MAX_DEPTH and _depth(pieces) > MAX_DEPTH:
        raise FrameError(f"a frame is nested more than {MAX_DEPTH} levels deep")
    return values


def is_too_deep(value: object, most: int = MAX_DEPTH) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(most == 0 or is_too_deep(each, most - 1) for each in inner if isinstance(each, (dict, list)))


def _outside_strings(text: str) -> Iterator[str]:
    end = -1
    while (start := text.find('"', end + 1)) >= 0:
        yield text[end + 1 : start]
        end = text.find('"', start + 1)
        if end < 0:
            return
    yield text[end + 1 :]


def _depth(pieces: list[str]) -> int:
    opens = (1 if bracket in "[{" else -1 for piece in pieces for bracket in _BRACKET.findall(piece))
    return max(itertools.accumulate(opens), default=0)
