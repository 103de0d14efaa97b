"""What the mouse has selected, as it was written: without the breaks of the screen and the indent of the layout.

A block is drawn a second time for this, without a limit to its lines. What can be seen of both drawings is the same, so
the places of the one are found in the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from textual.selection import Selection

from ..model.markdown import TAB

_LAYOUT = frozenset((TAB, "▌"))
"""Characters that only one of the drawings has, or not as often as the other: of quotes and tabs."""

_PROMPT = "❯ "

_WORD = re.compile(r"[\w./~:@%+=&?#$-]+")
_NO_ENDS = ".,:;?!"


def word_at(line: str, column: int) -> tuple[int, int] | None:
    """Return where the word at a column begins and ends, None between two words. Paths and addresses are words."""
    for found in _WORD.finditer(line):
        if found.start() <= column < found.end():
            word = found[0].rstrip(_NO_ENDS)
            return (found.start(), found.start() + len(word)) if column < found.start() + len(word) else None
    return None


def copied_text(rows: Sequence[str], whole: Sequence[str], selection: Selection, top: int) -> str:
    """Return what is selected of a block. `rows` are its lines on the screen, the first one with the number `top`,
    `whole` those of the other drawing."""
    start, end = _bounds(rows, selection, top)
    shown, written = _seen(rows), _seen(whole)
    if [each[2] for each in shown] != [each[2] for each in written]:
        if 0 <= end[0] < len(rows) and end[1] >= len(rows[end[0]].rstrip()):
            end = (end[0] + 1, 0)
        return _as_on_screen(_uncut(rows, whole), start, end)
    chosen = [at for at, (row, column, _) in enumerate(shown) if start <= (row, column) < end]
    if not chosen:
        return ""
    first, last = written[chosen[0]], written[chosen[-1]]
    begin, row = first[1], shown[chosen[0]][0]
    at_start = not chosen[0] or written[chosen[0] - 1][0] != first[0]  # of a line as it was written
    if at_start and start < (row, shown[chosen[0]][1]):
        begin = 0
    lines = [whole[first[0]][begin:], *whole[first[0] + 1 : last[0] + 1]]
    lines[-1] = lines[-1][: last[1] + 1 - (begin if first[0] == last[0] else 0)]
    text = "\n".join(_without_quote_bar(line).rstrip(" ") for line in lines)
    return text.removeprefix(_PROMPT).replace(TAB, "\t")


def _bounds(rows: Sequence[str], selection: Selection, top: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return where a selection starts and ends in the rows, as row and column."""
    start = (0, 0) if selection.start is None else (selection.start.y - top, selection.start.x)
    end = (len(rows), 0) if selection.end is None else (selection.end.y - top, selection.end.x)
    return start, end


def _seen(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return all that can be seen: line, column and character."""
    return [
        (row, column, char)
        for row, line in enumerate(lines)
        if line.strip(" -")  # no rule, which is as long as the drawing is wide
        for column, char in enumerate(line)
        if not char.isspace() and char not in _LAYOUT
    ]


def _uncut(rows: Sequence[str], whole: Sequence[str]) -> list[str]:
    """Return the rows, those that the screen has cut with their end, if each is a line of the other drawing."""
    filled = [row for row, line in enumerate(rows) if line.strip()]
    others = [line.strip() for line in whole if line.strip()]
    uncut = list(rows)
    for row, line in zip(filled, others if len(filled) == len(others) else (), strict=False):
        bare = rows[row].strip()
        if bare.endswith("…") and line.startswith(bare[:-1].rstrip()):
            uncut[row] = rows[row][: len(rows[row]) - len(rows[row].lstrip())] + line
    return uncut


def _as_on_screen(rows: Sequence[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return what is selected as it is drawn, without the indent that all its lines have."""
    lines = []
    for row, line in enumerate(rows):
        if start[0] <= row <= end[0]:
            cut = line[: end[1]] if row == end[0] else line
            lines.append(" " * start[1] + cut[start[1] :] if row == start[0] else cut)
    filled = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip(" ")) for line in filled), default=0)
    return "\n".join(line[indent:].rstrip(" ") for line in lines).strip("\n")


def _without_quote_bar(line: str) -> str:
    bare = line.lstrip(" ")
    return bare.removeprefix("▌ ") if bare.startswith("▌") else line
