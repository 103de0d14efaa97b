"""The lines of a change of a file: with line numbers and context if the worker has compared it with the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import View, traits_of

from ..card_rows import GOES_ON, CardLine, Voice
from ..untrusted.escapes import escaped

Json = dict[str, Any]

NO_NEWLINE = "No newline at end of file"
_VOICES = {"+": Voice.ADDED, "-": Voice.REMOVED, " ": Voice.CONTEXT}


@dataclass(frozen=True)
class DiffLine:
    """One line of a diff; `sign` is `+`, `-`, a space, or for words of ccb `…` between two places and `\\` about the
    line before."""

    sign: str
    text: str
    number: int | None = None


def diff_card_lines(lines: Sequence[DiffLine]) -> list[CardLine]:
    """Return a diff as lines of an approval card."""
    width = number_width(lines)
    goes_on = " " * (width + 1 if width else 0) + f"{GOES_ON} "
    return [
        CardLine(gutter(line, width), shown_line(line), _VOICES.get(line.sign, Voice.CCB), goes_on) for line in lines
    ]


def patch_lines(patch: Sequence[Any]) -> Iterator[DiffLine]:
    """Yield the lines of a public `structuredPatch`. What does not belong into one is left out."""
    for count, hunk in enumerate(patch):
        if not isinstance(hunk, dict):
            continue
        lines, old, new = hunk.get("lines"), hunk.get("oldStart"), hunk.get("newStart")
        if not isinstance(lines, list) or not isinstance(old, int) or not isinstance(new, int):
            continue
        if count:
            yield DiffLine("…", "")
        for line in map(str, lines):
            sign, text = line[:1], line[1:]
            if sign == "-":
                yield DiffLine("-", text, old)
                old += 1
            elif sign == "+":
                yield DiffLine("+", text, new)
                new += 1
            elif sign == " ":
                yield DiffLine(" ", text, new)
                old, new = old + 1, new + 1
            elif sign == "\\":
                yield DiffLine("\\", NO_NEWLINE)


def is_patch(patch: object) -> bool:
    """Return whether `patch` is a `structuredPatch` of which `patch_lines` leaves nothing out."""
    return isinstance(patch, list) and all(_is_hunk(hunk) for hunk in patch)


def _is_hunk(hunk: object) -> bool:
    if not isinstance(hunk, dict) or type(hunk.get("oldStart")) is not int or type(hunk.get("newStart")) is not int:
        return False
    lines = hunk.get("lines")
    return isinstance(lines, list) and all(
        isinstance(line, str) and line[:1] in ("+", "-", " ", "\\") and "\n" not in line for line in lines
    )


def planned_lines(name: str, tool_input: Mapping[str, Any]) -> Iterator[DiffLine]:
    """Yield what a call says that it changes, which was not compared with the file."""
    view = traits_of(name).view
    if view is View.NEW_CONTENT:
        yield from content_lines(str(tool_input.get("content", "")))
        return
    edits = tool_input.get("edits") if view is View.REPLACEMENTS else [tool_input]
    for count, edit in enumerate(edits if isinstance(edits, list) else []):
        if isinstance(edit, dict):
            if count:
                yield DiffLine("…", "")
            if edit.get("replace_all") is True:
                yield DiffLine("…", "everywhere in the file:")
            yield from replacement_lines(str(edit.get("old_string", "")), str(edit.get("new_string", "")))


def content_lines(content: str) -> Iterator[DiffLine]:
    """Yield the lines of a new file."""
    lines = content.split("\n")
    for number, line in enumerate(lines[:-1], 1):
        yield DiffLine("+", line, number)
    if lines[-1]:
        yield DiffLine("+", lines[-1], len(lines))
        yield DiffLine("\\", NO_NEWLINE)


def replacement_lines(old: str, new: str) -> Iterator[DiffLine]:
    """Yield the text that is looked for, and the one that replaces it; nothing for an empty one."""
    for sign, text in (("-", old), ("+", new)):
        for line in text.split("\n") if text else ():
            yield DiffLine(sign, line)


def number_width(lines: Sequence[DiffLine]) -> int:
    """Return how many digits the line numbers take."""
    return max((len(str(line.number)) for line in lines if line.number is not None), default=0)


def gutter(line: DiffLine, width: int) -> str:
    """Return what stands before a line: its number in `width` cells, and its sign."""
    number = "" if line.number is None else str(line.number)
    return (f"{number:>{width}} " if width else "") + f"{line.sign} "


def shown_line(line: DiffLine) -> str:
    """Return the text of a line as an exact picture."""
    return line.text if line.sign in "…\\" else escaped(line.text)
