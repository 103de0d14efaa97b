"""The rows of a card, and which of them were on the screen."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from ..rendering.card_rows import CardLine, CardRow, drawn, fold
from ..rendering.themes import Palette
from ..widgets.painting import marked

_SCROLL_BAR = 1  # cells, kept free also without a scroll bar: the rows must not change when one appears


class ApprovalSubject(ScrollView, can_focus=False):
    """Shows the lines of a card. `unseen` counts the rows below the last one down to which all were on the screen."""

    DEFAULT_CSS = """
    ApprovalSubject {
        height: auto; background: $background;
        scrollbar-size: 0 1; scrollbar-gutter: stable; overflow-x: hidden;
    }
    """
    ALLOW_SELECT = True

    class RowsSeen(Message):
        """More of the rows, or all, have been on the screen."""

    def __init__(self, lines: list[CardLine], palette: Palette) -> None:
        super().__init__()
        self._lines = lines
        self._palette = palette
        self._width = 0
        self.rows: list[CardRow] = []
        self._seen = 0  # rows from the top on
        self._counts = False
        self._height = 0  # before the present resize

    @property
    def unseen(self) -> int:
        return len(self.rows) - self._seen if self.rows else len(self._lines)

    @property
    def has_markdown(self) -> bool:
        return any(row.text is not None for row in self.rows)

    def replace_lines(self, lines: list[CardLine], *, known: bool = True) -> None:
        """Show other lines. They are `known` to the person because they wrote them, or have seen what these say."""
        self._lines = lines
        width, self._width = self._width, 0
        self._fold(width)
        self._seen = len(self.rows) if known else 0
        self.virtual_size = Size(self._width, len(self.rows))
        self.refresh(layout=True)

    def limit(self, height: int) -> None:
        """Limit the height. What is on the screen with the limit counts as seen: until then it may have flashed up."""
        self.styles.max_height = max(1, height)
        if not self._counts:
            self.call_after_refresh(self._count)

    def _count(self) -> None:
        self._counts = True
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._fold(width - _SCROLL_BAR)
        return len(self.rows)

    def on_resize(self) -> None:
        at_end = 0 < self.scroll_y >= len(self.rows) - self._height
        self._height = self.size.height
        self._fold(self.scrollable_content_region.width)
        self.virtual_size = Size(self._width, len(self.rows))
        self.refresh()
        if at_end:  # answers that appear must not push the last rows out of sight
            self.call_after_refresh(self._scroll, len(self.rows))

    def _fold(self, width: int) -> None:
        """Fold the lines to another width. What was seen stays so, up to the beginning of a line."""
        if width == self._width or width <= 0:
            return
        all_seen = bool(self.rows) and self._seen == len(self.rows)
        line = self.rows[self._seen].line if self._seen < len(self.rows) else 0
        self._width = width
        self.rows = fold(self._lines, width, self._palette)
        self._seen = sum(row.line < line for row in self.rows)
        if all_seen:
            self._seen = len(self.rows)

    def line_at(self, screen_y: int) -> int:
        """Return the number of the line that is drawn at a row of the screen, -1 if there is none."""
        number = screen_y - self.region.y + round(self.scroll_y)
        on_it = self.region.y <= screen_y < self.region.bottom and number < len(self.rows)
        return self.rows[number].line if on_it else -1

    def read_on(self) -> bool:
        """Scroll to the first rows not seen, or by a page if these are on the screen. Return False if all were seen."""
        if not self.unseen:
            return False
        page = self.size.height
        top = round(self.scroll_y)
        self._scroll(min(self._seen, top + page) if self._seen >= top else self._seen)
        return True

    def turn(self, pages: int) -> None:
        """Scroll by pages. No row is jumped over that has not been painted yet."""
        if pages > 0 and self.read_on():
            return
        self._scroll(round(self.scroll_y) + pages * self.size.height)

    def move(self, lines: int) -> None:
        """Scroll by lines, at once: of several scrolls that wait for the same refresh only one takes effect."""
        self._scroll(round(self.scroll_y) + lines)

    def _scroll(self, y: int) -> None:
        self.scroll_to(y=y, animate=False, immediate=True)

    def render_lines(self, crop: Region) -> list[Strip]:
        strips = super().render_lines(crop)
        top = round(self.scroll_y)
        first, end = top + crop.y, min(top + crop.bottom, len(self.rows))
        if self._counts and first <= self._seen < end:
            self._seen = end
            self.post_message(self.RowsSeen())
        return strips

    def render_line(self, y: int) -> Strip:
        number = round(self.scroll_y) + y
        if number >= len(self.rows):
            return Strip.blank(self._width, self.rich_style)
        text = drawn(self.rows[number], self._palette)
        strip = Strip([segment for segment in text.render(self.app.console) if segment.text])
        selection = self.text_selection
        span = selection.get_span(number) if selection is not None else None
        if span is not None:
            strip = marked(strip, span, self.screen.get_component_rich_style("screen--selection"))
        strip = strip.apply_style(self.rich_style).crop_extend(0, self._width, self.rich_style)
        return strip.apply_offsets(0, number)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract("\n".join(row.plain for row in self.rows)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()


_REVERSE = Style(reverse=True)


class FormRows(ApprovalSubject):
    """Shows the lines of one page of a form. The lines in `marked` (first, last) are drawn reversed."""

    def __init__(self, palette: Palette) -> None:
        super().__init__([], palette)
        self._marked = (0, -1)

    def show(self, lines: list[CardLine], marked: tuple[int, int]) -> None:
        self._marked = marked
        self.replace_lines(lines)
        self.call_after_refresh(self._bring_into_view)

    def _bring_into_view(self) -> None:
        first, last = self._marked
        places = [number for number, row in enumerate(self.rows) if first <= row.line <= last]
        top, height = round(self.scroll_y), self.size.height
        if places and (places[0] < top or (height >= len(places) and places[-1] >= top + height)):
            self._scroll(places[0] if places[0] < top else places[-1] - height + 1)

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        number = round(self.scroll_y) + y
        if number >= len(self.rows) or not self._marked[0] <= self.rows[number].line <= self._marked[1]:
            return strip
        reversed_segments = list(Segment.apply_style(strip, post_style=_REVERSE))
        return Strip(reversed_segments, strip.cell_length)
