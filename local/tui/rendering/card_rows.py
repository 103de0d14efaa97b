"""The lines of an approval card, and how they are folded to the width of the screen.

Every row begins with a gutter of ccb, so no text of the host or the model can look like words of ccb. A row that goes
on a line has the mark `┆` there, and is full, or ends with a visible space: the fold adds and removes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from ccb.tunnel.wire.dataclass import dataclass

from .markdown import whole_markdown
from .themes import Palette
from .untrusted_text import TAB, doubtful, symbols, tokens

GOES_ON = "┆"
_MIN_TEXT = 12  # cells; the longest symbol has 10
_EARLIEST_BREAK = 0.6  # share of a row that must be full before it may end between two words


class RowStyle(Enum):
    """Whose words a line has, or what they mean."""

    EXACT = "exact"  # what the call would do
    ADDED = "added"
    REMOVED = "removed"
    CONTEXT = "context"  # what is in the file and stays
    MODEL = "model"  # what the model says about it
    CCB = "ccb"
    WARNING = "warning"
    MARKDOWN = "markdown"  # lines, which are drawn as Markdown if that hides nothing; else they are exact


@dataclass(frozen=True)
class CardLine:
    """A line before it is folded: a gutter of ccb, then a picture. `goes_on` is the gutter of more rows."""

    gutter: str
    picture: str
    voice: RowStyle
    goes_on: str


@dataclass(frozen=True)
class CardRow:
    """One row of the screen. `line` is the index of its line; `text` the picture of a row of Markdown in its styles."""

    gutter: str
    picture: str
    voice: RowStyle
    line: int
    text: Text | None = None

    @property
    def plain(self) -> str:
        return self.gutter + self.picture


def own_words(text: str, voice: RowStyle = RowStyle.CCB) -> CardLine:
    return CardLine("· ", text, voice, "· ")


def fold(lines: Iterable[CardLine], width: int, palette: Palette) -> list[CardRow]:
    """Fold lines to rows of at most `width` cells."""
    rows: list[CardRow] = []
    for index, line in enumerate(lines):
        if line.voice is RowStyle.MARKDOWN:
            rows += _markdown_rows(line, index, width, palette)
            continue
        gutter = line.gutter
        for picture in _pieces(line.picture, max(_MIN_TEXT, width - cell_len(gutter))):
            own = line.voice in (RowStyle.CCB, RowStyle.WARNING)
            rows.append(CardRow(gutter, picture.rstrip("␣") if own else picture, line.voice, index))
            gutter = line.goes_on
    return rows


def _markdown_rows(line: CardLine, index: int, width: int, palette: Palette) -> list[CardRow]:
    text = re.sub(r"␣+$", "", line.picture.replace(TAB, "    "), flags=re.MULTILINE)  # in Markdown they mean spaces
    drawn = whole_markdown(text, palette, max(_MIN_TEXT, width - cell_len(line.gutter)))
    if drawn is not None:
        return [CardRow(line.gutter, each.plain, line.voice, index, each) for each in drawn]
    exact = exact_lines(line.picture)
    return [replace(row, line=index) for row in fold(exact, width, palette)]


def exact_lines(picture: str) -> list[CardLine]:
    return [CardLine("│ ", line, RowStyle.EXACT, f"{GOES_ON} ") for line in picture.split("\n")]


def _pieces(picture: str, width: int) -> Iterator[str]:
    if picture.isascii() and len(picture) <= width:
        yield picture
        return
    row: list[str] = []
    used = after_space = cells_after_space = 0
    for part in tokens(picture):
        cells = cell_len(part)
        while used + cells > width and row:
            if part != " " and cells_after_space > width * _EARLIEST_BREAK:
                yield _row(row[:after_space])
                row = row[after_space:]
                used -= cells_after_space
            else:
                yield _row(row)
                row, used = [], 0
            after_space = cells_after_space = 0
        row.append(part)
        used += cells
        if part == " ":
            after_space, cells_after_space = len(row), used
    yield "".join(row)


def _row(row: list[str]) -> str:
    """Return a row that is continued, with the spaces at its end made visible: those of a tab are no spaces."""
    end = len(row)
    while end and row[end - 1] == " ":
        end -= 1
    return "".join(row[:end]) + "␣" * (len(row) - end)


def drawn(row: CardRow, palette: Palette) -> Text:
    style = {
        RowStyle.EXACT: "bold",
        RowStyle.ADDED: palette.good,
        RowStyle.REMOVED: palette.bad,
        RowStyle.CONTEXT: palette.dim,
        RowStyle.MODEL: f"italic {palette.dim}",
        RowStyle.CCB: palette.dim,
        RowStyle.WARNING: f"bold {palette.warn}",
        RowStyle.MARKDOWN: "",
    }[row.voice]
    signed = row.voice in (RowStyle.ADDED, RowStyle.REMOVED)
    text = Text(no_wrap=True, end="")
    text.append(row.gutter, style=style if signed else palette.dim)
    start = len(row.gutter)
    text.append(row.text or row.picture, style=None if row.text else style)
    if row.voice in (RowStyle.CCB, RowStyle.WARNING):
        return text
    for first, end in doubtful(row.picture):
        text.stylize(f"underline {palette.warn}", start + first, start + end)
    for first, end in symbols(row.picture):
        faint = row.picture[first] in "⇥␣"
        text.stylize(palette.dim if faint else f"reverse {palette.warn}", start + first, start + end)
    return text


class FoldedRows:
    """Lines that are folded to the width at which they are drawn."""

    def __init__(self, lines: list[CardLine], palette: Palette) -> None:
        self._lines = lines
        self._palette = palette

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text("\n").join(drawn(row, self._palette) for row in fold(self._lines, options.max_width, self._palette))
