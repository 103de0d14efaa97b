"""The conversation as one widget: blocks rendered to lines where they are looked at, whatever their number.

A widget for each message costs two orders of magnitude more (measured). Heights of blocks that were never seen at this width
are estimated, and corrected when they come into view. Changes are laid out at most once a frame; a frame lasts longer when
laying out does, so that streaming never takes the whole CPU.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from ..model.blocks import Block, Level, NoticeBlock, ToolBlock
from ..render.render import is_animated, render
from ..theme.palette import Look, look_of
from .line_cache import Key, LineCache

MAX_BLOCKS = 5_000
MAX_CHARS = 20_000_000
_ROOM = 3 / 4  # of the limits that may be taken by what is loaded above; the rest is for what comes
_FRESH = 60  # newest blocks among which running tools are looked for
_KEPT_LINES = 2_000  # about 10 KB each with what Textual remembers of them
_TOOL_LINES = 5  # a guess
_EXACT_LINES = 500  # at the end of the page; further up heights are estimated
_OVERLAP = 2  # lines of the page before that stay when a page is turned
_FRAME_S = 0.04
_SLOWEST_FRAME_S = 0.5
_SHARE = 6  # a frame lasts this many times as long as the layout before it took


class Transcript(ScrollView, can_focus=False):
    """Shows blocks; stays at the bottom unless the person has scrolled up."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr; padding: 0 1; background: $background;
        scrollbar-size-vertical: 1; scrollbar-gutter: stable; overflow-x: hidden;
    }
    """
    ALLOW_SELECT = True

    class WheelUp(Message):
        """The person turned the wheel up."""

    def __init__(self, cwd: str = "") -> None:
        super().__init__()
        self._cwd = cwd
        self.blocks: list[Block] = []
        self._drawn = LineCache(_KEPT_LINES)
        self._heights: list[int] = []
        self._ends: list[int] = []
        self._sizes: dict[Block, int] = {}
        self._chars = 0
        self._details = False
        self._frame = 0
        self._look: Look | None = None
        self._dirty_from: int | None = None
        self._waiting = False
        self._frame_s = _FRAME_S
        self._laid_at = 0.0
        self._dropped = 0
        self._keep: tuple[Block, int] | None = None

    def on_mount(self) -> None:
        self.anchor()

    @property
    def details(self) -> bool:
        """Whether all of tool output and thinking is shown."""
        return self._details

    @property
    def below(self) -> int:
        """Lines under the last one shown; none while the page follows what comes, though it does so a frame later."""
        return round(self.max_scroll_y - self.scroll_y) if self._anchor_released else 0

    def toggle_details(self) -> None:
        self._details = not self._details
        self._lay_out_anew()

    def add(self, block: Block, *, before: Block | None = None) -> None:
        """Append a block, or put it in front of another one."""
        position = len(self.blocks) if before is None else self._position(before)
        self.blocks.insert(position, block)
        self._heights.insert(position, 0)
        self._weigh(block)
        self._relay(position)
        if len(self.blocks) > MAX_BLOCKS or self._chars > MAX_CHARS:
            self._drop_oldest()

    @property
    def has_room(self) -> bool:
        """Whether earlier blocks may still be put in."""
        return len(self.blocks) < MAX_BLOCKS * _ROOM and self._chars < MAX_CHARS * _ROOM

    def holds(self, block: Block) -> bool:
        """Whether a block is a part of the page."""
        return block in self._sizes

    def shows(self, block: Block) -> bool:
        """Whether a line of a block can be seen now."""
        position = self._position(block)
        if position >= len(self._ends):
            return False
        top = round(self.scroll_y)
        return self._ends[position] > top and self._ends[position] - self._heights[position] < top + self.size.height

    def insert(self, blocks: Sequence[Block], *, after: Block, turn_page: bool = False) -> None:
        """Put blocks behind one that is there. What follows stays where it is on the screen; with `turn_page` it goes to the
        bottom."""
        position = self._position(after) + 1
        if position < len(self.blocks) and position <= len(self._ends):
            row = self._ends[position - 1] - round(self.scroll_y)
            self._keep = self.blocks[position], max(0, self.size.height - _OVERLAP) if turn_page else row
            self.release_anchor()
        self.blocks[position:position] = blocks
        self._heights[position:position] = [0] * len(blocks)
        for block in blocks:
            self._weigh(block)
        self._relay(max(0, position - 1))

    def update_block(self, block: Block) -> None:
        """Show a block's new state."""
        block.changed()
        if block in self._sizes:
            self._weigh(block)
            self._relay(self._position(block))

    def take_away(self, block: Block) -> None:
        """Take a block away."""
        if block in self._sizes:
            position = self._position(block)
            del self.blocks[position], self._heights[position]
            self._drawn.forget(block)
            self._chars -= self._sizes.pop(block)
            self._relay(position)

    def tick(self) -> None:
        """Move the spinners of running tools."""
        self._frame += 1
        for block in self.blocks[-_FRESH:]:
            if is_animated(block):
                self.refresh()
                return

    def _position(self, block: Block) -> int:
        """Where a block is; it is nearly always one of the last."""
        for position in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[position] is block:
                return position
        return len(self.blocks)

    def _weigh(self, block: Block) -> None:
        self._chars += block.size() - self._sizes.get(block, 0)
        self._sizes[block] = block.size()

    def _drop_oldest(self) -> None:
        count = max(2, len(self.blocks) // 10)
        for block in self.blocks[:count]:
            self._drawn.forget(block)
            self._chars -= self._sizes.pop(block)
        self._dropped += count - (1 if self._dropped else 0)
        marker = NoticeBlock(text=f"… {self._dropped} older entries are no longer shown here", level=Level.DIM)
        self.blocks[:count] = [marker]
        self._heights[:count] = [0]
        self._weigh(marker)
        self._relay(0)

    def _lay_out_anew(self) -> None:
        self._drawn.clear()
        self._relay(0)

    def _relay(self, position: int) -> None:
        """Lay out again from a block on, with the next frame."""
        self._dirty_from = position if self._dirty_from is None else min(self._dirty_from, position)
        if not self._waiting and self.is_running:
            self._waiting = True
            wait = self._laid_at + self._frame_s - time.monotonic()
            if wait > 0:
                self.set_timer(wait, self._lay_out)
            else:
                self.call_next(self._lay_out)

    def _lay_out(self) -> None:
        self._waiting = False
        start = self._dirty_from
        if start is None or not self.size.width:
            return
        self._dirty_from = None
        began = time.monotonic()
        top, within = self._top()
        width = self._text_width()
        exact = _EXACT_LINES
        for position in range(len(self.blocks) - 1, start - 1, -1):
            block = self.blocks[position]
            height = self._drawn.height(block, self._key(block, width))
            if height is None:
                height = len(self._strips(block, width)) if exact > 0 else _estimate(block, width)
            self._heights[position] = height
            exact -= height
        self._ends = list(accumulate(self._heights))
        self.virtual_size = Size(width, self._ends[-1] if self._ends else 0)
        kept, self._keep = self._keep, None
        if kept is not None and kept[0] in self._sizes:
            position = self._position(kept[0])
            y = self._ends[position] - self._heights[position] - kept[1]
            self.scroll_to(y=y, animate=False, immediate=True, force=True)
        elif top is not None and self._anchor_released and top in self._sizes:
            position = self._position(top)
            within = min(within, max(0, self._heights[position] - 1))
            self.scroll_to(y=self._ends[position] - self._heights[position] + within, animate=False, immediate=True)
        self.refresh()
        self._laid_at = time.monotonic()
        self._frame_s = min(_SLOWEST_FRAME_S, max(_FRAME_S, _SHARE * (self._laid_at - began)))

    def _top(self) -> tuple[Block | None, int]:
        """The block at the top of what is shown, and which of its lines; it stays there when heights above it change."""
        line = round(self.scroll_y)
        position = bisect_right(self._ends, line)
        if position >= min(len(self.blocks), len(self._ends)):
            return None, 0
        start = self._ends[position - 1] if position else 0
        return self.blocks[position], line - start

    def _text_width(self) -> int:
        return max(10, self.scrollable_content_region.width)

    def turn(self, pages: int) -> None:
        """Scroll by pages, at once: a page that waits for the next refresh is lost when text that comes meanwhile scrolls."""
        y = self.scroll_y + pages * self.scrollable_content_region.height
        self.scroll_to(y=y, animate=False, immediate=True)
        self._check_anchor()  # a page shorter than the screen does not move, but must go on following

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._check_anchor()  # ScrollView does not: at the bottom again, the page follows again

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self.post_message(self.WheelUp())

    def on_resize(self) -> None:
        self._frame_s = 0
        self._lay_out_anew()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._look = None
        self._lay_out_anew()

    def look(self) -> Look:
        """The styles of the current theme."""
        if self._look is None:
            self._look = look_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        return replace(self._look, details=self._details, frame=self._frame, cwd=self._cwd)

    def _strips(self, block: Block, width: int) -> list[Strip]:
        """The lines of a block, a blank one first unless it is tight."""
        key = self._key(block, width)
        strips = self._drawn.lines(block, key)
        if strips is None:
            strips = self._draw(block, width)
            self._drawn.keep(block, key, strips)
        return strips

    def _key(self, block: Block, width: int) -> Key:
        return width, block.version, self._frame if is_animated(block) else 0

    def _draw(self, block: Block, width: int) -> list[Strip]:
        console: Console = self.app.console
        options = console.options.update(width=width, height=None, highlight=False)
        look = self.look()
        strips: list[Strip] = []
        with console.use_theme(look.markdown):
            for renderable in render(block, look):
                lines = console.render_lines(renderable, options, pad=False, new_lines=False)
                strips.extend(Strip(_without_links(line)) for line in lines)
        while strips and not strips[-1].text.strip():
            strips.pop()
        while strips and not strips[0].text.strip():
            strips.pop(0)
        return strips if block.tight else [Strip.blank(0), *strips]

    def render_line(self, y: int) -> Strip:
        scroll_x, scroll_y = self.scroll_offset
        line = scroll_y + y
        width = self._text_width()
        position = bisect_right(self._ends, line)
        if position >= min(len(self.blocks), len(self._ends)):
            return Strip.blank(width, self.rich_style)
        block = self.blocks[position]
        strips = self._strips(block, width)
        if len(strips) != self._heights[position]:
            self._relay(position)
        within = line - (self._ends[position - 1] if position else 0)
        strip = self._selected(strips[within], line) if within < len(strips) else Strip.blank(width)
        strip = strip.apply_style(self.rich_style).crop_extend(scroll_x, scroll_x + width, self.rich_style)
        return strip.apply_offsets(scroll_x, line)

    def _selected(self, strip: Strip, line: int) -> Strip:
        selection = self.text_selection
        span = selection.get_span(line) if selection is not None else None
        if span is None:
            return strip
        text = strip.text
        start = cell_len(text[: span[0]])
        end = strip.cell_length if span[1] == -1 else cell_len(text[: span[1]])
        if start >= end:
            return strip
        style: Style = self.screen.get_component_rich_style("screen--selection")
        before, inside, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end)
        marked = Strip(Segment.apply_style(inside, post_style=style), inside.cell_length)
        return Strip.join([before, marked, after])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        width = self._text_width()
        first = selection.start.y if selection.start is not None else 0
        last = selection.end.y if selection.end is not None else self.virtual_size.height
        lines: list[str] = []
        for block, end in zip(self.blocks, self._ends, strict=False):
            if end <= first or len(lines) > last:
                lines.extend("" for _ in range(len(lines), end))
                continue
            lines.extend(strip.text.rstrip() for strip in self._strips(block, width)[: end - len(lines)])
            lines.extend("" for _ in range(len(lines), end))
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
    return _TOOL_LINES if isinstance(block, ToolBlock) else 2 + block.size() // width
