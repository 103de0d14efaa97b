"""Which lines of a file match, with context: the one place that decides, whatever has chosen the file."""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from .walk import Limits

MOST_LINE = 1 << 20
"""Bytes of a line that are looked at."""
MOST_SHOWN = 500
"""Characters of a line that are shown."""
MOST_MULTILINE = 32 << 20
"""Largest file for a multi-line search."""

_BLOCK = 1 << 20
_SNIFF = 8192


@dataclass(frozen=True)
class Pattern:
    """What to look for. Lines end at a line feed; a carriage return before it belongs to the ending, unless the pattern
    asks for it. `texts` are texts of which every match has one (see `literals`)."""

    regex: re.Pattern[str]
    texts: tuple[bytes, ...]
    ignore_case: bool
    keeps_returns: bool
    multiline: bool

    def may_match(self, data: bytes) -> bool:
        """False when there surely is no match in these bytes."""
        if not self.texts:
            return True
        if self.ignore_case:
            data = data.lower()
        return any(text in data for text in self.texts)

    def line(self, raw: bytes) -> str | None:
        """The text of a line that matches, else None."""
        if not self.may_match(raw):
            return None
        text = self.decode(raw)
        return text if self.regex.search(text) else None

    def decode(self, raw: bytes) -> str:
        if not self.keeps_returns and raw.endswith(b"\r"):
            raw = raw[:-1]
        return raw.decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Line:
    """A line to show; `matches` is false for context."""

    number: int
    text: str
    matches: bool


def scan(path: str, pattern: Pattern, before: int, after: int, limits: Limits) -> Iterator[Line]:
    """Matching lines and their context, each once, in order. Nothing for binary files (a NUL in the first 8 KiB) and
    what cannot be read, which is noted in `limits`."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        limits.missed(path, error)
        return
    try:
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode):
            if pattern.multiline:
                yield from _scan_whole(file, status.st_size, pattern, before, after, limits)
            else:
                yield from _scan_lines(file, pattern, before, after, limits)
    except OSError as error:
        limits.missed(path, error)
    finally:
        os.close(file)


def _scan_lines(file: int, pattern: Pattern, before: int, after: int, limits: Limits) -> Iterator[Line]:
    recent: deque[tuple[int, bytes]] = deque(maxlen=before)
    number = 0
    owed = 0  # lines of context after a match that are still to come
    for chunk in _chunks(file, pattern, limits):
        if not owed and not pattern.may_match(chunk):
            count = chunk.count(b"\n") + (not chunk.endswith(b"\n"))
            if before:
                last = chunk[:-1] if chunk.endswith(b"\n") else chunk
                lines = last.rsplit(b"\n", before)[-before:]
                recent.extend((number + count - len(lines) + 1 + i, raw) for i, raw in enumerate(lines))
            number += count
            continue
        lines = chunk.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        for position, raw in enumerate(lines):
            number += 1
            if not position % 4096:
                limits.check()
            text = pattern.line(raw)
            if text is not None:
                for earlier, old in recent:
                    yield Line(earlier, pattern.decode(old), False)
                recent.clear()
                yield Line(number, text, True)
                owed = after
            elif owed:
                yield Line(number, pattern.decode(raw), False)
                owed -= 1
            elif before:
                recent.append((number, raw))


def _chunks(file: int, pattern: Pattern, limits: Limits) -> Iterator[bytes]:
    """Whole lines, many at a time. A line over MOST_LINE is cut there, which is noted where there may be a match
    behind."""
    rest = b""
    first = True
    cutting = missed = False
    overlap = max(map(len, pattern.texts), default=1)
    tail = b""
    while True:
        limits.check()
        block = os.read(file, _BLOCK)
        if first and b"\0" in block[:_SNIFF]:
            return
        first = False
        if cutting:
            end = block.find(b"\n") if block else 0
            dropped = block if end < 0 else block[:end]
            missed = missed or (bool(dropped) and pattern.may_match(tail + dropped))
            if end < 0:
                tail = (tail + dropped)[-overlap:]
                continue
            limits.cut += missed and pattern.line(rest) is None
            block, cutting = block[end:], False
        if not block:
            break
        data = rest + block
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if end:
            yield data[:end]
        if len(rest) >= MOST_LINE:
            missed = pattern.may_match(rest[MOST_LINE - overlap :]) if len(rest) > MOST_LINE else False
            tail = rest[-overlap:]
            rest, cutting = rest[:MOST_LINE], True
    if rest:
        yield rest


def _scan_whole(file: int, size: int, pattern: Pattern, before: int, after: int, limits: Limits) -> Iterator[Line]:
    if size > MOST_MULTILINE:
        limits.large += 1
        return
    data = b"".join(iter(lambda: os.read(file, _BLOCK), b""))
    limits.check()
    if b"\0" in data[:_SNIFF] or not pattern.may_match(data):
        return
    text = data.decode("utf-8", "surrogateescape")
    if not pattern.keeps_returns:
        text = text.replace("\r\n", "\n")
    matching: set[int] = set()
    at, number = 0, 1
    for match in pattern.regex.finditer(text):
        if match.start() == len(text) and text.endswith("\n"):
            break  # an empty match behind the last line
        number += text.count("\n", at, match.start())
        at = match.start()
        last = number + text.count("\n", match.start(), max(match.start(), match.end() - 1))
        matching.update(range(number, last + 1))
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    shown = {near for n in matching for near in range(n - before, n + after + 1) if 0 < near <= len(lines)}
    for n in sorted(shown):
        yield Line(n, lines[n - 1], n in matching)
