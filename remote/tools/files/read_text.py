"""A range of the lines of a text file, read as a stream: the file is never held in memory."""

from __future__ import annotations

import codecs
import hashlib
import json
from dataclasses import replace

from ccb.tunnel.wire.dataclass import dataclass

from ...system.host import Host
from ...system.text_encoding import SNIFF, is_binary, name_of, wide_decoder

MAX_LINES = 2000
MAX_LINE = 2000
"""How many characters of a line are shown."""
MAX_CHARS = 100_000
"""Longest result in characters."""
MAX_BYTES = 150_000
"""Longest result in bytes, as JSON in UTF-8, so that its message line stays small."""

_BLOCK = 1 << 20
_MAX_SCANNED = 256 << 20  # bytes read past the wanted lines to count the others and to know the version
_LINE_BYTES = 4 * MAX_LINE + 16  # bytes of a line that are kept: enough for MAX_LINE characters
LINE_CUT = "… [line cut: it has "
NOT_UTF8 = "?"
"""The encoding of a text that is not in UTF-8 and has no byte order mark."""


class Binary(Exception):
    """The file is not text; `head` is its start."""

    def __init__(self, head: bytes) -> None:
        super().__init__()
        self.head = head


@dataclass(frozen=True)
class TextRange:
    """The lines from `start` (counted from 1) on. `total` is the number of lines in the file; if `whole` is false, the
    file has at least that many and `digest` is "". `full`: a size limit ended the result before the last line that was
    asked for. `encoding` is "" for UTF-8. `content` is that of the whole file if it is small."""

    lines: list[str]
    start: int
    total: int
    digest: str
    whole: bool
    full: bool
    empty: bool
    encoding: str = ""
    content: bytes | None = None

    @property
    def next_line(self) -> int:
        return self.start + len(self.lines)


async def read_range(host: Host, path: str, offset: int, limit: int) -> TextRange:
    """Return `limit` lines from line `offset` on (counted from 1). Raise Binary, NotAFile or OSError."""
    sha = hashlib.sha256()
    wanted = _Wanted(offset, limit)
    position, content, encoding = 0, None, ""
    wide: codecs.IncrementalDecoder | None = None
    strict = codecs.getincrementaldecoder("utf-8")()
    while position < _MAX_SCANNED or not wanted.done:
        block = await host.read(path, position, _BLOCK)
        if position == 0:
            content = block if len(block) < _BLOCK else None
            if is_binary(block, whole=content is not None):
                raise Binary(block[:SNIFF])
            wide = wide_decoder(block, whole=content is not None)
            encoding = name_of(block) if wide else ""
        sha.update(block)
        position += len(block)
        if wide is not None:
            wanted.feed(wide.decode(block, not block).encode("utf-8"))
        elif not encoding:
            try:
                strict.decode(block, not block)
            except UnicodeDecodeError:
                encoding = NOT_UTF8
        if not block:
            wanted.finish()
            result = wanted.result(sha.hexdigest(), whole=True, empty=position == 0)
            return replace(result, encoding=encoding, content=content)
        if wide is None:
            wanted.feed(block)
    return replace(wanted.result("", whole=False, empty=False), encoding=encoding)


class _Wanted:
    """Takes the blocks of a file and keeps the lines in the range."""

    def __init__(self, offset: int, limit: int) -> None:
        self.done = False
        self._offset = offset
        self._limit = limit
        self._lines: list[str] = []
        self._number = 1  # of the line being read
        self._line = bytearray()
        self._line_size = 0
        self._chars = 0
        self._bytes = 0
        self._full = False

    def feed(self, block: bytes) -> None:
        if not self.done and self._number + block.count(b"\n") < self._offset:
            self._number += block.count(b"\n")
            self._start_line(block[block.rfind(b"\n") + 1 :], fresh=b"\n" in block)
            return
        start = 0
        while not self.done:
            end = block.find(b"\n", start)
            if end < 0:
                self._start_line(block[start:], fresh=False)
                return
            self._start_line(block[start:end], fresh=False)
            self._end_line()
            start = end + 1
        self._number += block.count(b"\n", start)
        last = block.rfind(b"\n", start)
        self._start_line(block[max(last + 1, start) :], fresh=last >= 0)

    def finish(self) -> None:
        if self._line_size:
            self._end_line()

    def result(self, digest: str, whole: bool, empty: bool) -> TextRange:
        return TextRange(self._lines, self._offset, self._number - 1, digest, whole, self._full, empty)

    def _start_line(self, part: bytes, fresh: bool) -> None:
        if fresh:
            self._line.clear()
            self._line_size = 0
        if not self.done and self._number >= self._offset:
            self._line += part[: max(0, _LINE_BYTES - len(self._line))]
        self._line_size += len(part)

    def _end_line(self) -> None:
        if self._offset <= self._number and not self.done:
            self._take()
        self._number += 1
        self._line.clear()
        self._line_size = 0

    def _take(self) -> None:
        cut = self._line_size > len(self._line)
        text = self._line.decode("utf-8", "replace").rstrip("\r")
        if self._number == 1 and text.startswith("\ufeff"):
            text = text[1:]
        if cut or len(text) > MAX_LINE:
            text = f"{text[:MAX_LINE]}{LINE_CUT}{self._line_size:,} bytes]"
        chars = len(text) + len(str(self._number)) + 2
        size = len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) + len(str(self._number)) + 2
        if self._lines and (self._chars + chars > MAX_CHARS or self._bytes + size > MAX_BYTES):
            self.done = self._full = True
            return
        self._lines.append(text)
        self._chars += chars
        self._bytes += size
        self.done = len(self._lines) >= self._limit
