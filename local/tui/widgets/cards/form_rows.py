"""The rows of a form: a subject whose lines change while the person fills it in, with one row marked."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ...render.card_rows import CardLine
from ...theme.palette import Palette
from .approval_subject import ApprovalSubject

_REVERSE = Style(reverse=True)


class FormRows(ApprovalSubject):
    """Shows the lines of one page of a form. The lines in `marked` (first, last) are drawn reversed."""

    def __init__(self, palette: Palette) -> None:
        super().__init__([], palette)
        self._marked = (0, -1)

    def show(self, lines: list[CardLine], marked: tuple[int, int]) -> None:
        """Show other lines, and as many as possible of the marked ones."""
        self._marked = marked
        self.replace_lines(lines)
        self.call_after_refresh(self._bring_into_view)

    def _bring_into_view(self) -> None:
        first, last = self._marked
        places = [number for number, row in enumerate(self._rows) if first <= row.line <= last]
        top, height = round(self.scroll_y), self.size.height
        if places and (places[0] < top or (height >= len(places) and places[-1] >= top + height)):
            self._scroll(places[0] if places[0] < top else places[-1] - height + 1)

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        number = round(self.scroll_y) + y
        if number >= len(self._rows) or not self._marked[0] <= self._rows[number].line <= self._marked[1]:
            return strip
        reversed_segments = list(Segment.apply_style(strip, post_style=_REVERSE))
        return Strip(reversed_segments, strip.cell_length)
