"""The front matter of Markdown files, a part of YAML."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, Union

from ccb.tunnel.wire.dataclass import dataclass

Value = Union[str, list[str]]

NESTED = ("hooks", "mcpServers")
"""The values that are nested in the files of agents."""


@dataclass(frozen=True)
class MarkdownFile:
    """`fields` are the values of the front matter, None for a file without one; `body` is the text after it. `lines`
    are those of each value as they stand there, for `read_nested`."""

    fields: dict[str, Value] | None
    body: str
    lines: Mapping[str, list[str]] = field(default_factory=dict)


def read_markdown(text: str) -> MarkdownFile:
    """Split a file. A value is a text (of several lines after `|` or `>`) or a list of texts. Raise ValueError."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].strip() != "---":
        return MarkdownFile(None, text)
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), 0)
    if not end:
        raise ValueError("the front matter has no end: a line with --- is missing")
    blocks = _blocks(lines[1:end])
    fields = {name: _value(block[0], block[1:]) for name, block in blocks.items()}
    return MarkdownFile(fields, "\n".join(lines[end + 1 :]).strip(), blocks)


def _blocks(lines: list[str]) -> dict[str, list[str]]:
    """Return the lines of each value: what stands behind the colon, and what stands below."""
    found: dict[str, list[str]] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, rest = line.partition(":")
        if not colon or line[0].isspace() or not name.strip():
            raise ValueError(f"line {at + 1} of the front matter is not `name: value`")
        block = found[name.strip()] = [rest.strip()]
        while at < len(lines) and (not lines[at].strip() or lines[at][0].isspace() or _is_item(lines[at])):
            block.append(lines[at])
            at += 1
    return found


def _value(first: str, block: list[str]) -> Value:
    filled = [line.strip() for line in block if line.strip()]
    if first[:1] in ("|", ">"):
        return ("\n" if first[0] == "|" else " ").join(line.strip() for line in block).strip()
    if not first and filled and all(map(_is_item, filled)):
        return [_plain(line[1:].strip()) for line in filled]
    if first.startswith("[") and first.endswith("]"):
        return [_plain(each.strip()) for each in first[1:-1].split(",") if each.strip()]
    return _plain(" ".join([first, *filled]).strip())


def names_in(value: object) -> tuple[str, ...]:
    """Return the names in a list, or in a text with commas between them."""
    listed = value if isinstance(value, list) else str(value or "").split(",")
    return tuple(name for each in listed if (name := str(each).strip()))


def _is_item(line: str) -> bool:
    return line.strip() == "-" or line.lstrip().startswith("- ")


def _plain(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return _unquoted(text)
    return text.partition(" #")[0].rstrip()


_KEY = re.compile(
    r"""(?:("(?:[^"\\]|\\.)*"|'[^']*')\s*|([^\s"'\[{#&*!|>-][^:]*|-[^\s:][^:]*)):(?:\s+(.*))?""", re.DOTALL
)
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*(?:#.*)?""", re.DOTALL)
_PARTS = re.compile(
    r"""\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*|([^\s,"'\[\]{}][^,"'\[\]{}]*))(?:,|\Z)"""
)  # no two neighbours take the same characters, so that no text takes long
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_MAX_DEPTH = 20


def read_nested(lines: Sequence[str]) -> Any:
    """Return the value of a key from the text behind its colon and the lines below. Raise ValueError."""
    first, block = lines[0], lines[1:]
    if first and not first.startswith("#"):
        return _inline(" ".join([first, *(line.strip() for line in block)]).strip())
    reader = _Reader(block)
    return reader.value(reader.indent) if reader.indent >= 0 else None


class _Reader:
    """Goes through the lines of a block. `indent` is that of the next line, -1 at the end."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = deque(line.rstrip() for line in lines)
        self._depth = 0
        self._skip()

    def _skip(self) -> None:
        while self._lines and (not self._lines[0] or self._lines[0].lstrip().startswith("#")):
            del self._lines[0]

    @property
    def indent(self) -> int:
        if not self._lines:
            return -1
        line = self._lines[0]
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise ValueError("front matter is indented with spaces, not tabs")
        return len(line) - len(line.lstrip())

    @property
    def _at_item(self) -> bool:
        return bool(self._lines) and _is_item(self._lines[0])

    def value(self, indent: int) -> Any:
        """Read the list or the object whose lines have this indent."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("the front matter is nested too deeply")
        found: Any = self._list(indent) if self._at_item else self._object(indent)
        if self.indent > indent:
            raise ValueError(f"{self._lines[0].strip()[:80]!r} is indented further than what it belongs to")
        self._depth -= 1
        return found

    def _list(self, indent: int) -> list[Any]:
        found = []
        while self.indent == indent and self._at_item:
            rest = self._lines[0][indent + 1 :]
            text = rest.lstrip()
            if text and (_KEY.fullmatch(text) or text.startswith("- ")):
                inner = indent + 1 + len(rest) - len(text)
                self._lines[0] = " " * inner + text
                found.append(self.value(inner))
            else:
                found.append(self._rest(text, indent))
        return found

    def _object(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.indent == indent and not self._at_item:
            match = _KEY.fullmatch(self._lines[0].strip())
            if match is None:
                raise ValueError(f"{self._lines[0].strip()[:80]!r} is not `name: value`")
            key = match[2].rstrip() if match[2] else str(_inline(match[1]))
            found[key] = self._rest(match[3] or "", indent)
        return found

    def _rest(self, text: str, indent: int) -> Any:
        del self._lines[0]
        if text[:1] in ("|", ">"):
            return self._text(text, indent)
        self._skip()
        if text and not text.startswith("#"):
            return _inline(text)
        if self.indent > indent or (self.indent == indent and self._at_item):
            return self.value(self.indent)
        return None

    def _text(self, mark: str, indent: int) -> str:
        """Read a text of several lines, which are indented further."""
        taken: list[str] = []
        while self._lines and (not self._lines[0] or self.indent > indent):
            taken.append(self._lines.popleft())
        self._skip()
        left = min((len(line) - len(line.lstrip()) for line in taken if line), default=0)
        return ("\n" if mark[0] == "|" else " ").join(line[left:] for line in taken).strip()


def _inline(text: str) -> Any:
    if text[:1] in ("[", "{"):
        return _flow(text)
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        plain = re.split(r"\s#", text, maxsplit=1)[0].strip()
        if plain.lower() in _WORDS:
            return _WORDS[plain.lower()]
        return json.loads(plain) if _NUMBER.fullmatch(plain) else plain
    return _unquoted(quoted[1])


def _unquoted(text: str) -> str:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        return text[1:-1].replace('\\"', '"')


def _flow(text: str) -> Any:
    """Return a list or an object that stands in one line: as JSON, or a list of plain values."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    inner, found, at = text[1:-1].strip(), [], 0
    while at < len(inner):
        part = _PARTS.match(inner, at)
        if part is None or not (text.startswith("[") and text.endswith("]")):
            raise ValueError(f"{text[:80]!r} cannot be read: write it as JSON, or over several lines")
        found.append(_inline(part[1] or part[2].strip()))
        at = part.end()
    return found
