"""The conversation as one widget: blocks rendered to lines where they are looked at, whatever their number.

A widget for each message costs two orders of magnitude more (measured). Heights of blocks that were never seen at this width
are estimated, and corrected when they come into view.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from .blocks import Block, Level, NoticeBlock
from .look import Look, is_animated, render

MAX_BLOCKS = 5_000
MAX_CHARS = 20_000_000
_FRESH = 60  # newest blocks that are laid out exactly after a resize


class _Laid:
    """The lines of a block at one width, in one look."""

    def __init__(self, key: tuple[object, ...], strips: list[Strip]) -> None:
        self.key = key
        self.strips = strips


class Transcript(ScrollView, can_focus=True):
    """Shows blocks; stays at the bottom unless the person has scrolled up."""

    DEFAULT_CSS = """
    Transcript { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; scrollbar-gutter: stable; background: $background; }
    """
    ALLOW_SELECT = True

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Block] = []
        self._laid: dict[Block, _Laid] = {}
        self._heights: list[int] = []
        self._ends: list[int] = []
        self._chars = 0
        self._details = False
        self._frame = 0
        self._dirty_from: int | None = None
        self._dropped = 0

    def on_mount(self) -> None:
        self.anchor()

    @property
    def details(self) -> bool:
        """Whether all of tool output and thinking is shown."""
        return self._details

    def toggle_details(self) -> None:
        self._details = not self._details
        self._laid.clear()
        self._relay(0)

    def add(self, block: Block, *, before: Block | None = None) -> None:
        """Append a block, or put it in front of another one."""
        position = len(self.blocks) if before is None else self.blocks.index(before)
        self.blocks.insert(position, block)
        self._heights.insert(position, 0)
        self._chars += block.size()
        self._relay(position)
        if len(self.blocks) > MAX_BLOCKS or self._chars > MAX_CHARS:
            self._drop_oldest()

    def update_block(self, block: Block) -> None:
        """Show a block's new state."""
        block.changed()
        try:
            position = len(self.blocks) - 1 - self.blocks[::-1].index(block)
        except ValueError:
            return
        self._relay(position)

    def take_away(self, block: Block) -> None:
        """Take a block away."""
        if block in self.blocks:
            position = self.blocks.index(block)
            del self.blocks[position], self._heights[position]
            self._laid.pop(block, None)
            self._chars -= block.size()
            self._relay(position)

    def tick(self) -> None:
        """Move the spinners of running tools that can be seen."""
        self._frame += 1
        for block in self.blocks[-_FRESH:]:
            if is_animated(block):
                self._laid.pop(block, None)
                self.refresh()

    def _drop_oldest(self) -> None:
        count = max(1, len(self.blocks) // 10)
        self._dropped += count
        for block in self.blocks[:count]:
            self._laid.pop(block, None)
        marker = NoticeBlock(text=f"… {self._dropped} older entries are no longer shown here", level=Level.DIM)
        self.blocks[:count] = [marker]
        self._heights[:count] = [0]
        self._chars = sum(block.size() for block in self.blocks)
        self._relay(0)

    def _relay(self, position: int) -> None:
        """Lay out again from a block on, once before the next refresh."""
        first = self._dirty_from is None
        self._dirty_from = position if self._dirty_from is None else min(self._dirty_from, position)
        if first:
            self.call_next(self._lay_out)

    def _lay_out(self) -> None:
        start = self._dirty_from
        if start is None or not self.is_mounted:
            return
        self._dirty_from = None
        width = self._text_width()
        exact_from = max(0, len(self.blocks) - _FRESH)
        for position in range(start, len(self.blocks)):
            block = self.blocks[position]
            if position >= exact_from or block in self._laid:
                self._heights[position] = len(self._strips(block, width))
            else:
                self._heights[position] = _estimate(block, width)
        self._measure()

    def _measure(self) -> None:
        self._ends = list(accumulate(self._heights))
        self.virtual_size = Size(self._text_width(), self._ends[-1] if self._ends else 0)
        self.refresh()

    def _text_width(self) -> int:
        return max(10, self.scrollable_content_region.width)

    def on_resize(self) -> None:
        self._laid.clear()
        self._relay(0)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._laid.clear()
        self._relay(0)

    def look(self) -> Look:
        """The styles of the current theme."""
        colours = self.app.get_css_variables()
        return Look(
            accent=colours.get("accent", "cyan"),
            dim=colours.get("foreground-muted-rich", "grey50"),
            good=colours.get("success", "green"),
            bad=colours.get("error", "red"),
            warn=colours.get("warning", "yellow"),
            dark=self.app.current_theme.dark,
            details=self._details,
            frame=self._frame,
        )

    def _strips(self, block: Block, width: int) -> list[Strip]:
        """The lines of a block, a blank one first unless it is tight or the first of all."""
        frame = self._frame if is_animated(block) else 0
        key = (width, block.version, self._details, frame)
        laid = self._laid.get(block)
        if laid is None or laid.key != key:
            laid = _Laid(key, self._draw(block, width))
            self._laid[block] = laid
        return laid.strips

    def _draw(self, block: Block, width: int) -> list[Strip]:
        console: Console = self.app.console
        options = console.options.update(width=width, height=None, highlight=False)
        strips = [] if block.tight else [Strip.blank(width)]
        for renderable in render(block, self.look()):
            lines = console.render_lines(renderable, options, pad=False, new_lines=False)
            strips.extend(Strip(_without_links(line)) for line in lines)
        while len(strips) > 1 and not strips[-1].text.strip():
            strips.pop()
        if not block.tight:
            while len(strips) > 2 and not strips[1].text.strip():
                strips.pop(1)
        return strips

    def render_line(self, y: int) -> Strip:
        scroll_x, scroll_y = self.scroll_offset
        line = scroll_y + y
        width = self._text_width()
        position = bisect_right(self._ends, line)
        if position >= len(self.blocks) or position >= len(self._ends):
            return Strip.blank(width, self.rich_style)
        block = self.blocks[position]
        strips = self._strips(block, width)
        if len(strips) != self._heights[position]:
            self._relay(position)
        within = line - (self._ends[position] - self._heights[position])
        strip = strips[within] if 0 <= within < len(strips) else Strip.blank(width)
        strip = self._selected(strip, line)
        return strip.apply_style(self.rich_style).crop_extend(scroll_x, scroll_x + width, self.rich_style).apply_offsets(
            scroll_x, line
        )  # fmt: skip

    def _selected(self, strip: Strip, line: int) -> Strip:
        selection = self.text_selection
        span = selection.get_span(line) if selection is not None else None
        if span is None:
            return strip
        start, end = span
        end = strip.cell_length if end == -1 else min(end, strip.cell_length)
        if start >= end:
            return strip
        style: Style = self.screen.get_component_rich_style("screen--selection")
        before, inside, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end)
        marked = Strip(Segment.apply_style(inside, post_style=style), inside.cell_length)
        return Strip.join([before, marked, after])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        width = self._text_width()
        lines = [strip.text.rstrip() for block in self.blocks for strip in self._strips(block, width)]
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()


def _without_links(line: list[Segment]) -> list[Segment]:
    """Drop hyperlinks and control segments: a terminal must not act on what the remote says."""
    return [
        Segment(
            segment.text, segment.style.update_link(None) if segment.style and segment.style.link else segment.style
        )
        for segment in line
        if not segment.control
    ]


def _estimate(block: Block, width: int) -> int:
    """A height that is about right, for blocks far from what is shown."""
    return 2 + block.size() // width if block.size() else 2
