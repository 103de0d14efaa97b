"""The rows of the transcript as they reach the terminal.

A row that scrolls is the same row. It is kept with everything that Textual computes for it, so that a frame makes only
the rows that are new. The way of Textual's own widgets makes all of them anew with every scroll.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.strip import Strip

from ccb.tunnel.wire.dataclass import dataclass

from .drawn_lines import Line


@dataclass(frozen=True)
class RowLook:
    """What all rows have in common: the style below their text, the cells for text, those of the whole row with `left`
    of them in front of the text, and the filters before the terminal."""

    style: Style
    text_width: int
    width: int
    left: int
    filters: tuple[LineFilter, ...]
    background: Color


class PaintedLines:
    """Makes rows of drawn lines, and keeps the newest `most` of them by keys that say everything they depend on besides
    the look."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._look: RowLook | None = None
        self._rows: dict[tuple[object, ...], Strip] = {}  # the row painted first is the first one
        self._blank: Strip | None = None

    def use(self, look: RowLook) -> None:
        """Make rows of this look from now on, and forget those of another one."""
        if look != self._look:
            self._look = look
            self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._rows.clear()
        self._blank = None

    def forget(self, block: object) -> None:
        """Forget the rows whose keys begin with a block: it has gone."""
        for key in [each for each in self._rows if each[0] is block]:
            del self._rows[key]

    def known(self, key: tuple[object, ...]) -> Strip | None:
        """Return the row of a key if it is kept."""
        return self._rows.get(key)

    def keep(self, key: tuple[object, ...], row: Strip) -> None:
        """Keep a row, and forget the oldest one for it."""
        self._rows[key] = row
        if len(self._rows) > self._most:
            del self._rows[next(iter(self._rows))]

    def blank(self) -> Strip:
        """Return a row without text."""
        if self._blank is None:
            self._blank = self.row([])
        return self._blank

    def row(self, line: Line) -> Strip:
        """Return the whole row of a drawn line."""
        look = self._look
        assert look is not None
        text = styled(line, look.style)
        strip = Strip(text).crop(0, look.text_width)
        right = look.width - look.left - strip.cell_length
        segments = [Segment(" " * look.left, look.style), *strip, Segment(" " * right, look.style)]
        for each in look.filters:
            segments = each.apply(segments, look.background)
        return Strip(segments, look.width)


def styled(line: Line, style: Style) -> list[Segment]:
    """Return a drawn line with `style` below its own."""
    return [Segment(segment.text, style + segment.style if segment.style else style) for segment in line]


def rows_of(strips: Sequence[Strip], span: tuple[int, int], width: int) -> list[Strip]:
    """Return the columns of `span` of rows that are `width` cells wide."""
    return list(strips) if span == (0, width) else [strip.crop(*span) for strip in strips]
