"""The front matter of a Markdown file: the lines between two `---`, in the part of YAML that such files use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Union

from ccb.tunnel.wire.dataclass import dataclass

Value = Union[str, list[str]]

NESTED = ("hooks", "mcpServers")
"""The values that are nested in the files of agents."""


@dataclass(frozen=True)
class MarkdownFile:
    """`fields` are the values of the front matter, None for a file without one; `body` is the text after it. `lines`
    are those of each value as they stand there, for values that are nested (see `nested_yaml`)."""

    fields: dict[str, Value] | None
    body: str
    lines: Mapping[str, list[str]] = field(default_factory=dict)


def read_markdown(text: str) -> MarkdownFile:
    """Split a file. A value is a text, or a list of texts (`[a, b]`, or lines that begin with `-`). `|` and `>` begin a
    text of several lines. Raise ValueError for a line that cannot be read."""
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


def _is_item(line: str) -> bool:
    return line.strip() == "-" or line.lstrip().startswith("- ")


def _plain(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        quote, inner = text[0], text[1:-1]
        return inner.replace("''", "'") if quote == "'" else inner.replace('\\"', '"').replace("\\n", "\n")
    return text.partition(" #")[0].rstrip()
