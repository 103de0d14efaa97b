"""What is left of a program's output on a terminal's lines after carriage returns, backspaces and erased lines."""

from __future__ import annotations

import re

_MOVES = re.compile(r"(\r|\x08+|\x1b\[[0-2]?K)")
_TO_END, _TO_START, _ALL = "\x1b[K", "\x1b[1K", "\x1b[2K"


def last_state(text: str) -> str:
    """Return `text` with each line as a terminal shows it at the end: a progress bar is there once."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(_last_state_of_line(line) if _MOVES.search(line) else line for line in lines)


def _last_state_of_line(line: str) -> str:
    """Return the last state of one line. The time is linear in its length, however often it is written over."""
    cells: list[str] = []
    column = 0
    for part in _MOVES.split(line):
        if part == "\r":
            column = 0
        elif part.startswith("\x08"):
            column = max(0, column - len(part))
        elif _MOVES.fullmatch(part):
            if part == _ALL:
                cells.clear()
            elif part == _TO_START:
                cells[: column + 1] = " " * min(column + 1, len(cells))
            else:
                del cells[column:]
        elif part:
            cells.extend(" " * (column - len(cells)))
            cells[column : column + len(part)] = part
            column += len(part)
    return "".join(cells)
