"""NDJSON framing with a limit on everything.

A line is at most MAX_LINE bytes. A frame that needs more is split in `part` lines ({"t":"part","id":…,"i":…,"n":…,
"d":…}), put together again by the receiver up to MAX_FRAME; parts of one frame may have other frames between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from .errors import FrameError
from .frames import Frame, Json, frame_from_dict, frame_to_dict

MAX_LINE = 256 * 1024
"""Longest line in bytes, newline included."""

MAX_FRAME = 64 * 1024 * 1024
"""Largest frame in bytes after its parts are joined."""

_MAX_OPEN_PARTS = 16
_PART_CHARS = 40 * 1024  # a character is at most 6 bytes once it is escaped

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dump(data: Json) -> str:
    """Compact JSON text of an object; the one spelling used on the wire, in the journal and on stdout."""
    return _ENCODER.encode(data)


def to_bytes(text: str) -> bytes:
    """UTF-8 of `text`; lone surrogates (file names, broken tool output) become `?`."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def encode_frame(frame: Frame, part_id: int = 0) -> list[bytes]:
    """The line or lines of a frame. `part_id` must differ between large frames that are under way at the same time."""
    text = dump(frame_to_dict(frame))
    line = to_bytes(text) + b"\n"
    if len(line) <= MAX_LINE:
        return [line]
    if len(line) > MAX_FRAME:
        raise FrameError(f"a frame of {len(line)} bytes is over the limit of {MAX_FRAME}")
    pieces = [text[i : i + _PART_CHARS] for i in range(0, len(text), _PART_CHARS)]
    return [
        to_bytes(dump({"t": "part", "id": part_id, "i": i, "n": len(pieces), "d": piece})) + b"\n"
        for i, piece in enumerate(pieces)
    ]


class LineSplitter:
    """Cuts a byte stream at `\\n` only, however it is chunked; refuses a line over the limit at once."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._pending: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines completed by `data`, without their newline."""
        start = 0
        while True:
            end = data.find(b"\n", start)
            piece = data[start:] if end < 0 else data[start:end]
            self._size += len(piece)
            if self._size >= self._limit:
                sample = b"".join(self._pending)[:80] or piece[:80]
                raise FrameError(f"a line is longer than {self._limit} bytes", sample)
            if end < 0:
                if piece:
                    self._pending.append(piece)
                return
            if self._pending:
                self._pending.append(piece)
                piece = b"".join(self._pending)
                self._pending = []
            self._size = 0
            start = end + 1
            yield piece

    def rest(self) -> bytes:
        """The bytes of an unfinished last line."""
        return b"".join(self._pending)


class FrameDecoder:
    """Bytes in, typed frames out: the one decoder for everything that comes over a link."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._parts: dict[int, list[str]] = {}
        self._part_bytes = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames completed by `data`; kinds unknown to this version are skipped. Raises FrameError."""
        for line in self._lines.feed(data):
            frame = self._decode(line)
            if frame is not None:
                yield frame

    def _decode(self, line: bytes) -> Frame | None:
        if not line.strip():
            return None
        try:
            data = json.loads(line)
        except ValueError as error:
            raise FrameError(f"a line is not JSON ({error})", line) from None
        except RecursionError:
            raise FrameError("a line is nested too deeply", line) from None
        if isinstance(data, dict) and data.get("t") == "part":
            whole = self._join(data, line)
            if whole is None:
                return None
            try:
                data = json.loads(whole)
            except (ValueError, RecursionError) as error:
                raise FrameError(f"joined parts are not JSON ({error})", line) from None
        return frame_from_dict(data)

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
        self._part_bytes += len(line)
        if self._part_bytes > MAX_FRAME or len(self._parts) > _MAX_OPEN_PARTS:
            raise FrameError(f"unfinished parts are over the limit of {MAX_FRAME} bytes", line)
        if len(pieces) < total:
            return None
        del self._parts[number]
        whole = "".join(pieces)
        self._part_bytes = sum(len(piece) for open_part in self._parts.values() for piece in open_part)
        return whole
