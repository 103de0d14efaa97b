"""The thumb of a scrollbar beside what grows: it is painted again only when it looks different."""

from __future__ import annotations

from math import ceil

from textual.scrollbar import ScrollBar

_PARTS = 8  # of a cell, in which Textual draws the ends of the thumb


def extended(bar: ScrollBar, lines: int) -> bool:
    """Tell the scrollbar of a view that shows the last of now `lines` lines. Return False if it is not laid out yet."""
    window, rows = bar.window_size, bar.size.height
    if not window or not rows or lines <= window:
        return False
    before = _thumb(rows, bar.window_virtual_size, window, bar.position)
    last = float(lines - window)
    bar.set_reactive(ScrollBar.window_virtual_size, lines)
    bar.set_reactive(ScrollBar.position, last)
    if _thumb(rows, lines, window, last) != before:
        bar.refresh()
    return True


def _thumb(rows: int, lines: int, window: int, position: float) -> tuple[int, int] | None:
    """Return where the thumb begins and ends, in parts of a cell, as Textual computes it."""
    if lines <= window:
        return None
    cells = max(1, window * rows / lines)
    start = int((rows - cells) * position / (lines - window) * _PARTS)
    return start, start + ceil(cells * _PARTS)
