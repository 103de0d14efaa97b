"""Patterns, the texts that their matches must contain, and the lines of a file that match."""

from __future__ import annotations

import os
import re
import stat
import sys
import warnings
from collections import deque
from collections.abc import Iterator

from ..system.text_encoding import is_binary, wide_decoder
from .globs import BadRequest
from .walk import Limits

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

_MAX_TEXTS = 40
_UNSAFE_IGNORING_CASE = frozenset("iksIKS")  # when case is ignored, these also match other Unicode characters


def required(pattern: str, flags: int) -> tuple[list[str], bool]:
    """Return (texts, ignore case): texts of which every line with a match contains one, [] if none are known."""
    parser: Any = sys.modules["re._parser" if sys.version_info >= (3, 11) else "sre_parse"]  # `re` has imported it
    tree = parser.parse(pattern, flags)
    ignore_case = bool(tree.state.flags & re.IGNORECASE or re.search(r"\(\?[aLmsux]*i", pattern))
    found = _texts(tree, ignore_case)
    return (sorted(found), ignore_case) if found and min(map(len, found)) >= 2 else ([], False)


def _texts(tree: Any, ignore_case: bool) -> set[str]:
    """Return texts of which every match of a sequence of operations contains one, an empty set if none are known."""
    best: set[str] = set()
    run = ""
    for operation, argument in tree:
        if operation.name == "LITERAL" and _is_safe(chr(argument), ignore_case):
            run += chr(argument)
            continue
        best = _better(_better(best, {run} - {""}), _texts_of(operation.name, argument, ignore_case))
        run = ""
    return _better(best, {run} - {""})


def _texts_of(name: str, argument: Any, ignore_case: bool) -> set[str]:
    if name == "SUBPATTERN":
        return _texts(argument[3], ignore_case)
    if name == "ATOMIC_GROUP":
        return _texts(argument, ignore_case)
    if name.endswith("_REPEAT") and argument[0] >= 1:
        return _texts(argument[2], ignore_case)
    if name == "BRANCH":
        found = [_texts(branch, ignore_case) for branch in argument[1]]
        together = set().union(*found) if all(found) else set()
        return together if len(together) <= _MAX_TEXTS else set()
    return set()


def _is_safe(char: str, ignore_case: bool) -> bool:
    if char in "\r\n\0" or "\ud800" <= char <= "\udfff":
        return False
    return not ignore_case or (char.isascii() and char not in _UNSAFE_IGNORING_CASE)


def _better(one: set[str], other: set[str]) -> set[str]:
    return max(one, other, key=lambda texts: (min(map(len, texts)), -len(texts)) if texts else (0, 0))


MAX_LINE = 16 << 20  # number of bytes of a line that are searched; the rest of a longer one is not
MAX_SHOWN = 500  # number of characters of a line that are shown
MAX_MULTILINE = 32 << 20  # largest file of a multi-line search, in bytes

_BLOCK = 1 << 20
_FIRST_BLOCK = 1 << 16  # most files end in it, and room for a larger one would take time
_MARK = b"\xef\xbb\xbf"


_POSIX = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s",
    "blank": r" \t", "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "word": r"\w", "cntrl": r"\x00-\x1f\x7f",
}  # fmt: skip


def _posix_class(match: re.Match[str]) -> str:
    if match[1] not in _POSIX:
        raise BadRequest(f"The pattern names an unknown character class [:{match[1]}:].")
    return _POSIX[match[1]]


class Pattern:
    """A pattern to search for, in the dialect that ripgrep and Python share: the syntax of `re`, and POSIX classes in
    brackets. Lines end at a line feed. A carriage return before it belongs to the line ending, unless the pattern
    contains one. If there are `texts`, every match contains one of them. Raise BadRequest for an invalid pattern."""

    def __init__(self, text: str, ignore_case: bool = False, multiline: bool = False) -> None:
        flags = (re.IGNORECASE if ignore_case else 0) | (re.MULTILINE | re.DOTALL if multiline else 0)
        source = re.sub(r"\[:(\w+):\]", _posix_class, text) if "[[" in text or ":]" in text else text
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.regex = re.compile(source, flags)
                texts, self.ignore_case = required(source, flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise BadRequest(f"The pattern is not a valid regular expression: {error}") from None
        self.texts = tuple((each.lower() if self.ignore_case else each).encode() for each in texts)
        self.multiline = multiline
        self.is_ascii = text.isascii() and not re.search(r"\\[xuUN]", text)
        self.keeps_returns = "\\r" in text or "\r" in text

    def may_match(self, data: bytes) -> bool:
        """Return False if there is certainly no match in these bytes."""
        if not self.texts:
            return True
        if self.ignore_case:
            data = data.lower()
        for text in self.texts:  # noqa: SIM110 - `any` takes four times as long, and this is asked for each line
            if text in data:
                return True
        return False

    def line(self, raw: bytes) -> str | None:
        """Return the text of a line if it matches, else None."""
        if self.may_match(raw) and self.regex.search(text := self.decode(raw)):
            return text
        return None

    def decode(self, raw: bytes) -> str:
        if not self.keeps_returns and raw.endswith(b"\r"):
            raw = raw[:-1]
        return raw.decode("utf-8", "surrogateescape")


Line = tuple[int, str, bool]
"""A line to show: its number, its text, and whether it matches; context does not."""

_LOST = re.compile("[\udc80-\udcff]")
_FOREIGN: Line = (0, "\udcff", False)
"""Stands for a part of a file that is not in UTF-8, and may hide a match."""


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def scan(path: str, pattern: Pattern, before: int, after: int, limits: Limits) -> Iterator[Line]:
    """Yield the matching lines and their context, each once, in order. Yield nothing for a binary file (a NUL in the
    first 8 KiB), or for an unreadable file, which is noted in `limits`."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        limits.missed(path, error)
        return
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode) or _is_small_without_match(os.read(file, _FIRST_BLOCK), pattern):
            return
        os.lseek(file, 0, os.SEEK_SET)
        scanned = _scan_whole if pattern.multiline else _scan_lines
        for number, text, matches in scanned(file, pattern, before, after, limits):
            if _LOST.search(text):
                limits.foreign.add(path)
            if number:
                yield number, text, matches
    except OSError as error:
        limits.missed(path, error)
    finally:
        os.close(file)


def _is_small_without_match(head: bytes, pattern: Pattern) -> bool:
    """Return whether a file that begins with `head` certainly has no match: most files are told apart here."""
    if len(head) == _FIRST_BLOCK or not pattern.is_ascii or pattern.may_match(head):
        return False
    return b"\0" not in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))


def _scan_lines(file: int, pattern: Pattern, before: int, after: int, limits: Limits) -> Iterator[Line]:
    recent: deque[tuple[int, bytes]] = deque(maxlen=before)
    number = 0
    owed = 0  # number of context lines still to show after the last match
    for chunk in _chunks(file, pattern, limits):
        if not pattern.is_ascii and chunk.endswith(b"\n") and not _is_utf8(chunk):
            yield _FOREIGN
        if not owed and not pattern.may_match(chunk):
            whole = chunk.removesuffix(b"\n")
            number += whole.count(b"\n") + 1
            lines = whole.rsplit(b"\n", before)[-before:] if before else []
            recent.extend(zip(range(number - len(lines) + 1, number + 1), lines))
            continue
        for position, raw in enumerate(chunk.removesuffix(b"\n").split(b"\n")):
            number += 1
            if not position % 4096:
                limits.check()
            text = pattern.line(raw)
            if text is not None:
                for earlier, old in recent:
                    yield earlier, pattern.decode(old), False
                recent.clear()
                yield number, text, True
                owed = after
            elif owed:
                yield number, pattern.decode(raw), False
                owed -= 1
            elif before:
                recent.append((number, raw))


def _chunks(file: int, pattern: Pattern, limits: Limits) -> Iterator[bytes]:
    """Yield whole lines, many at a time. Of a longer line only the first MAX_LINE bytes are kept; `limits.cut` counts
    those without a match there."""
    rest = b""
    cutting = False
    for block in _blocks(file, limits):
        if cutting:
            end = block.find(b"\n")
            if block and end < 0:
                continue
            block, cutting = block[max(0, end) :], False
        if not block:
            break
        data = rest + block
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if end:
            yield data[:end]
        if len(rest) >= MAX_LINE:
            rest, cutting = rest[:MAX_LINE], True
            limits.cut += pattern.line(rest) is None
    if rest:
        yield rest


def _blocks(file: int, limits: Limits) -> Iterator[bytes]:
    """Yield the blocks of a text file, and an empty one at its end. A binary file yields nothing."""
    block = os.read(file, _FIRST_BLOCK)
    whole = len(block) < _FIRST_BLOCK
    wide = wide_decoder(block, whole=whole)
    if is_binary(block, whole=whole):
        limits.binary += 1
        return
    if block.startswith(_MARK):
        block = block[len(_MARK) :] or os.read(file, _BLOCK)
    while block:
        limits.check()
        yield wide.decode(block).lstrip("\ufeff").encode("utf-8", "replace") if wide else block
        block = os.read(file, _FIRST_BLOCK if whole else _BLOCK)
    if wide:
        yield wide.decode(b"", True).encode("utf-8", "replace")
    yield b""


def _scan_whole(file: int, pattern: Pattern, before: int, after: int, limits: Limits) -> Iterator[Line]:
    if os.fstat(file).st_size > MAX_MULTILINE:
        limits.large += 1
        return
    data = b"".join(iter(lambda: os.read(file, _BLOCK), b""))
    limits.check()
    if is_binary(data, whole=True):
        limits.binary += 1
        return
    wide = wide_decoder(data, whole=True)
    data = wide.decode(data, True).encode("utf-8", "replace") if wide else data
    data = data.removeprefix(_MARK)
    if not pattern.is_ascii and not _is_utf8(data):
        yield _FOREIGN
    if not pattern.may_match(data):
        return
    text = data.decode("utf-8", "surrogateescape")
    if not pattern.keeps_returns:
        text = text.replace("\r\n", "\n")
    matching: set[int] = set()
    at, number = 0, 1
    for match in pattern.regex.finditer(text):
        limits.check()
        if match.start() == len(text) and text.endswith("\n"):
            break  # an empty match after the last line
        number += text.count("\n", at, match.start())
        at = match.start()
        last = number + text.count("\n", match.start(), max(match.start(), match.end() - 1))
        matching.update(range(number, last + 1))
    lines = text.removesuffix("\n").split("\n")
    shown = {near for n in matching for near in range(n - before, n + after + 1) if 0 < near <= len(lines)}
    for n in sorted(shown):
        yield n, lines[n - 1], n in matching
