"""The pieces of a long Markdown text: where it is cut so that each is parsed and drawn by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from ccb.tunnel.wire.dataclass import dataclass

PIECE_CHARS = 600  # a piece is at least this long, so that a text is not hundreds of blocks
LIVE_PIECE_CHARS = 300  # the same while the text still grows: the last piece is drawn again with every frame
_LONG = 2  # times as long, code is cut also in front of an indented line
_BULLETS = ("- ", "* ", "+ ")
_NUMBER = re.compile(r"\d{1,9}[.)] ")
_CLOSING = ")]}"
_BAR = re.compile(r"(?<!\\)\|")
_RULER = re.compile(r"\|([ \t]*:?-+:?[ \t]*\|)+\s*")  # the line below the head of a table


@dataclass(eq=False)
class TableColumns:
    """The widths of the columns of a table in pieces, by the width of the drawing."""

    beginning: str
    widths: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenBlock:
    """What the beginning of a piece goes on with: the code or the table that `lines` opened, or nothing."""

    lines: str = ""
    columns: TableColumns | None = None


NOTHING_OPEN = OpenBlock()


@dataclass(frozen=True)
class Piece:
    text: str
    opening: OpenBlock = NOTHING_OPEN


def first_cut(piece: Piece, chars: int = PIECE_CHARS) -> tuple[Piece, Piece] | None:
    """Cut the first piece, of at least `chars` characters, off a text that may still grow. None if it cannot be cut."""
    reader = _Reader(piece, chars)
    place = next(reader.places(), 0)
    if not place:
        return None
    text, opening = piece.text, piece.opening
    columns = opening.columns
    if reader.in_table and columns is None:
        columns = TableColumns(text[:place])
    behind = OpenBlock(reader.opened, columns if reader.in_table else None)
    return Piece(text[:place], OpenBlock(opening.lines, columns)), Piece(text[place:], behind)


def pieces_of(text: str) -> list[Piece]:
    found, rest = [], Piece(text)
    while (cut := first_cut(rest)) is not None:
        piece, rest = cut
        found.append(piece)
    return [*found, rest]


def _complete_lines(text: str) -> Iterator[str]:
    """Yield the lines as Markdown has them. What follows the last end of a line is left out."""
    begin = 0
    while end := text.find("\n", begin) + 1:
        yield text[begin:end]
        begin = end


class _Reader:
    """Reads a piece line by line. `opened` are the lines that opened the code or the table that it is in."""

    def __init__(self, piece: Piece, chars: int) -> None:
        self._chars = chars
        self._text = piece.text
        self.opened = piece.opening.lines
        self.in_table = piece.opening.columns is not None and bool(self.opened)
        self._fence = "" if self.in_table else _opened_fence(self.opened)
        self._last = ""  # the line before
        self._numbered = False
        self._code_from = 0
        self._filled_to = 0  # the end of the last line of code that is not blank

    def places(self) -> Iterator[int]:
        """Yield the places of cuts. A line that is not complete is not judged: it may become another one."""
        position = 0
        for line in _complete_lines(self._text):  # lazily: the first cut of a long text is near its beginning
            place = self._in_code(line, position) if self._fence else self._outside_code(line, position)
            if place:
                yield place
            self._last = line
            position += len(line)

    def _in_code(self, line: str, position: int) -> int:
        stripped = line.strip()
        if stripped.startswith(self._fence) and not stripped.strip(self._fence[0]):
            self._fence = self.opened = ""
            return 0
        if not stripped:
            return 0
        place = self._filled_to or position  # blank lines begin a piece: at its end they would not be drawn
        flat = not line.startswith((" ", "\t", *_CLOSING))
        long_enough = place >= (self._chars if flat else _LONG * self._chars)
        self._filled_to = position + len(line)
        return place if self.opened and long_enough and place > self._code_from else 0

    def _outside_code(self, line: str, position: int) -> int:
        if self.in_table and line.startswith("|"):
            return position if position >= self._chars else 0
        self.opened, self.in_table = "", False
        if self._ends_table_head(line):
            head = position - len(self._last)
            if not head:
                self.opened, self.in_table = self._last + line, True
            return head  # a table begins a piece
        place = position if position >= self._chars and self._begins_part(line) else 0
        self._fence = _opened_fence(line.lstrip())
        if self._fence and not line.startswith((" ", "\t")):
            self.opened = "" if place else line
        self._code_from, self._filled_to = position + len(line), 0
        self._numbered = bool(_NUMBER.match(line)) or (self._numbered and (not line.strip() or line[0] in " \t"))
        return place

    def _ends_table_head(self, line: str) -> bool:
        return bool(_RULER.fullmatch(line)) and self._last.startswith("|") and _cells(line) == _cells(self._last)

    def _begins_part(self, line: str) -> bool:
        if line.startswith(_BULLETS) or (self._numbered and _NUMBER.match(line)):
            return True
        return not self._last.strip() and bool(line.strip()) and not line.startswith((" ", "\t"))


def _cells(line: str) -> int:
    line = line.strip()
    return len(_BAR.findall(line)) - line.endswith("|")


def _opened_fence(line: str) -> str:
    """Return the backticks or tildes that open a block of code on this line, or ""."""
    for char in "`~":
        rest = line.lstrip(char)
        run = line[: len(line) - len(rest)]
        if len(run) >= 3:
            return "" if char == "`" and char in rest else run
    return ""
