"""The conversation as one widget: one for each message costs two orders of magnitude more.

The heights of blocks that were never drawn at this width are estimated, and corrected when they come into view. Changes
are laid out at most once a frame, so that streaming never takes the whole CPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.filter import LineFilter
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from ...terminal.keymap import DEFAULT_KEYMAP, Keymap
from ...transcript.blocks import (
    Block,
    Level,
    NoticeBlock,
    OfferBlock,
    PromptBlock,
    PromptState,
    TipsBlock,
    ToolBlock,
    cut_of,
    stack,
)
from ..rendering.block_renderer import is_animated
from ..rendering.markdown import word_at
from ..rendering.pictures import PictureShelf, is_of_picture
from ..rendering.themes import Palette, palette_in
from .drawing import BlockLayout, Line, TranscriptDrawing, estimated_height, letters_of, line_after, line_text, turned
from .painting import KeyPriority, call_once_after, marked

_MIN_FRAME_S = 0.05
_MAX_FRAME_S = 0.5
_FRAME_PER_LAYOUT = 8  # a frame lasts this many times the CPU time of the previous layout and painting
_MAX_ANIMATED = 60  # newest blocks that are searched for running tools
_TURN_S = 0.2


class Spinners:
    """Turns the spinners of a transcript while at least one is in view. `frame` counts the turns."""

    def __init__(self, transcript: ScrollView, layout: BlockLayout, drawing: TranscriptDrawing) -> None:
        self.frame = 0
        self._transcript = transcript
        self._layout = layout
        self._drawing = drawing
        self._timer: Timer | None = None

    def mounted(self) -> None:
        self._timer = self._transcript.set_interval(_TURN_S, self._turn, pause=True)

    def resume(self) -> None:
        if self._timer is not None and any(True for _ in self._rows()):
            self._timer.resume()

    def _turn(self) -> None:
        rows = list(self._rows())
        if rows:
            self.frame += 1
            self._transcript.refresh(*(Region(0, row, 1, 1) for row in rows))
        elif self._timer is not None:
            self._timer.pause()  # until one comes into view

    def _rows(self) -> Iterator[int]:
        layout, top = self._layout, round(self._transcript.scroll_y)
        last = len(layout.blocks)
        for position in range(max(0, last - _MAX_ANIMATED), last):
            start = layout.start(position) if is_animated(layout.blocks[position]) else None
            if start is not None:
                row = start + self._drawing.head_line(layout.blocks[position]) - top
                if 0 <= row < self._transcript.size.height:
                    yield row


_SLICE_S = 0.012  # CPU seconds of a layout for lines some screens away; the next one draws more
_BETWEEN_SLICES_S = 0.001  # messages of a widget to itself would let nothing else run
_MAX_ROWS = 256  # that are kept; about 10 KB each with what Textual keeps for them
_EXACT_LINES = 500  # drawn blocks at the end of the transcript; further up heights are estimated
_OVERLAP_LINES = 2  # lines of the page before that stay when a page is turned
_AFTER_KEY_S = 0.008


_RowLook = tuple[Style, int, int, tuple[LineFilter, ...]]
"""What all rows have in common: their style, the cells for text, those of the whole row, and the last filters."""


class _InSight(NamedTuple):
    """The first line in sight: its block, and how many letters of the block stand before it."""

    block: Block
    letters: int


class Transcript(ScrollView, can_focus=False):
    """Shows blocks. It follows new blocks at the bottom unless the person has scrolled up."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr; padding: 0 1; background: $background;
        scrollbar-size-vertical: 1; scrollbar-gutter: stable; overflow-x: hidden;
    }
    """
    ALLOW_SELECT = True

    class WheelUp(Message):
        """The person turned the wheel up."""

    @dataclass
    class AgentChosen(Message):
        """The person clicked on the call that has started a sub-agent."""

        call: ToolBlock

    def __init__(
        self,
        cwd: str,
        keymap: Keymap = DEFAULT_KEYMAP,
        keys: KeyPriority | None = None,
        shelf: PictureShelf | None = None,
    ) -> None:
        super().__init__()
        self.shelf = shelf
        self._keys = keys or KeyPriority()
        self.block_layout = BlockLayout()
        self._drawing = TranscriptDrawing(
            lambda: (self.app.console, self.palette()), self.update_block, cwd, keymap, shelf
        )
        self._draws_on = False
        self._look: _RowLook | None = None
        self._rows: dict[tuple[object, ...] | None, Strip] = {}  # the row drawn first is the first one
        self._changed: dict[Block, None] = {}  # since the last layout
        self._spinners = Spinners(self, self.block_layout, self._drawing)
        self._palette: Palette | None = None
        self._dropped = 0
        self._kept_last: list[Block] = []
        self._tips: TipsBlock | None = None
        self._dirty_from: int | None = None  # the first block that has to be laid out again
        self._layout_waits = False
        self._frame_s = _MIN_FRAME_S
        self._laid_out_at = 0.0  # monotonic
        self._painting_s = 0.0  # CPU seconds since the last layout
        self._keep_in_place: tuple[Block, int] | None = None  # a block, and the row of the screen where it stays
        self._in_sight: _InSight | None = None  # since the window was resized, until somebody scrolls
        self._laid_width = 0
        self._lays_out = False

    def on_mount(self) -> None:
        self.anchor()
        self._spinners.mounted()

    @property
    def blocks(self) -> Sequence[Block]:
        return self.block_layout.blocks

    @property
    def choices_in_sight(self) -> list[ToolBlock | OfferBlock]:
        """The calls of sub-agents and the offers of ports that can be seen now."""
        choices = (
            each
            for each in self.blocks
            if isinstance(each, OfferBlock) or (isinstance(each, ToolBlock) and each.agent is not None)
        )
        return [each for each in choices if self.is_in_view(each)]

    @property
    def lines_below(self) -> int:
        """The number of lines below the screen; 0 while the transcript follows what comes, even if a frame late."""
        return round(self.max_scroll_y - self.scroll_y) if self._anchor_released else 0

    def toggle_details(self) -> None:
        self._drawing.details = not self._drawing.details
        self._in_sight = None
        self._redraw_all()

    def add(self, block: Block, *, before: Block | None = None) -> None:
        layout = self.block_layout
        self._make_room(block)
        position = len(layout.blocks) if before is None else layout.position(before)
        if self._kept_last and not (isinstance(block, PromptBlock) and block.state is not PromptState.TAKEN):
            position = min(position, layout.position(self._kept_last[0]))
        stack(layout.blocks[position - 1] if position else None, block)
        layout.insert(position, [block])
        self._lay_out_soon(position)
        if layout.is_full:
            self._drop_oldest()

    def keep_last(self, blocks: Sequence[Block]) -> None:
        """Keep these blocks below all others but prompts that wait, in place of those that were kept there before."""
        kept, self._kept_last = self._kept_last, []
        for each in kept:
            self.take_away(each)
        for each in blocks:
            self.add(each)
        self._kept_last = list(blocks)

    def _make_room(self, block: Block) -> None:
        if isinstance(block, TipsBlock):
            self._tips = block
        elif self._tips is not None and not isinstance(block, NoticeBlock):
            tips, self._tips = self._tips, None
            self.take_away(tips)

    def is_in_view(self, block: Block) -> bool:
        """Return whether at least one line of a block can be seen now."""
        layout, top = self.block_layout, round(self.scroll_y)
        start = layout.start(position := layout.position(block))
        return start is not None and start < top + self.size.height and layout.ends[position] > top

    def insert(self, blocks: Sequence[Block], *, after: Block, turn_page: bool = False) -> None:
        """Insert earlier blocks after a block. Those below stay where they are; `turn_page` moves them down."""
        layout = self.block_layout
        position = layout.position(after) + 1
        start = layout.start(position - 1)
        if position < len(layout.blocks) and start is not None:
            row = start + layout.heights[position - 1] - round(self.scroll_y)
            bottom = max(0, self.size.height - _OVERLAP_LINES)
            self._keep_in_place = layout.blocks[position], bottom if turn_page else row
            self.release_anchor()
        layout.insert(position, blocks)
        self._lay_out_soon(max(0, position - 1))

    def update_block(self, block: Block) -> None:
        """Draw a block anew with the next frame. Until then it stays on the screen as it was drawn."""
        if block in self.block_layout:
            if block not in self._changed:
                self._changed[block] = None
                self.block_layout.weigh(block)  # much may come before the next layout
            self._lay_out_soon(self.block_layout.position(block))
        else:
            block.changed()

    def take_away(self, block: Block) -> None:
        if block in self.block_layout:
            position = self.block_layout.position(block)
            self._remove(position)
            self._lay_out_soon(position)

    def cut(self, first: Block, before: Block | None) -> list[Block]:
        gone = cut_of(self.blocks, first, before)
        for each in reversed(gone):  # the last one is found first
            self.take_away(each)
        return gone

    def _drop_oldest(self) -> None:
        layout = self.block_layout
        count = max(2, len(layout.blocks) // 10)
        for _ in range(count):
            self._remove(0)
        self._dropped += count - (1 if self._dropped else 0)
        marker = NoticeBlock(text=f"… {self._dropped} older entries are no longer shown here", level=Level.DIM)
        layout.insert(0, [marker])
        self._lay_out_soon(0)

    def _remove(self, position: int) -> None:
        block = self.block_layout.remove(position)
        self._drawing.forget(block)
        self._changed.pop(block, None)
        self._rows = {key: row for key, row in self._rows.items() if key is None or key[0] is not block}

    def _redraw_all(self) -> None:
        self._drawing.outdate()
        self._rows.clear()
        self._lay_out_soon(0)

    def _lay_out_soon(self, position: int) -> None:
        """Lay out the blocks from an index on again, with the next frame."""
        self._dirty_from = position if self._dirty_from is None else min(self._dirty_from, position)
        if not self._layout_waits and self.is_running:
            self._layout_waits = True
            wait = self._laid_out_at + self._frame_s - time.monotonic()
            if wait > 0:
                call_once_after(self, wait, self._lay_out)
            else:
                self.call_next(self._lay_out)

    def _lay_out(self) -> None:
        if self._keys.waits:
            call_once_after(self, _AFTER_KEY_S, self._lay_out)
            return
        self._layout_waits = False
        start = self._dirty_from
        if start is None or not self.size.width:
            return
        self._dirty_from = None
        began = time.thread_time()
        layout = self.block_layout
        for block in self._changed:
            block.changed()
            layout.weigh(block)
        self._changed.clear()
        at_top = layout.at_line(round(self.scroll_y))
        top = at_top[:2] if at_top is not None else None
        width = self._text_width()
        self._measure(start, width)
        layout.lay_out()
        self._laid_width = width
        self._lays_out = True
        self._extend(Size(width, layout.lines))
        self._scroll_back(top)
        self._lays_out = False
        self._check_anchor()
        self._spinners.resume()
        self.refresh()
        took, self._painting_s = time.thread_time() - began + self._painting_s, 0.0
        self._frame_s = min(_MAX_FRAME_S, max(_MIN_FRAME_S, _FRAME_PER_LAYOUT * took))
        self._laid_out_at = time.monotonic()

    def _extend(self, size: Size) -> None:
        """Set the size of what can be scrolled through. Arrange other widgets only if the scrollbar comes or goes."""
        if size.height and self.show_vertical_scrollbar == (size.height > self.container_size.height):
            self.set_reactive(Transcript.virtual_size, size)
            self._scroll_update(size)
            if self.is_anchored and not self._anchor_released:
                self.scroll_target_y = self.scroll_y = self.max_scroll_y
        else:
            self.virtual_size = size

    def _measure(self, start: int, width: int) -> None:
        """Set the heights of the blocks from an index on. Draw those near the end, estimate the others."""
        layout, began, drawn, fresh = self.block_layout, time.thread_time(), 0, 0
        for position in range(len(layout.blocks) - 1, start - 1, -1):
            block = layout.blocks[position]
            height = self._drawing.height(block, width)
            if height is None:
                near = drawn < _EXACT_LINES
                spent = fresh and drawn > 3 * self.size.height and time.thread_time() - began > _SLICE_S
                if near and spent:
                    self._lay_out_soon(start)  # the next frame goes on
                fresh += near
                height = len(self._lines(block)) if near and not spent else estimated_height(block, width)
            layout.heights[position] = height
            drawn += height

    def _scroll_back(self, top: tuple[Block, int] | None) -> None:
        layout = self.block_layout
        kept, self._keep_in_place = self._keep_in_place, None
        first = self._in_sight
        if kept is not None and kept[0] in layout:
            self._in_sight = None
            y = layout.first_line(kept[0]) - kept[1]
        elif first is not None and self._anchor_released and first.block in layout:
            lines = self._drawing.lines(first.block, self._text_width())
            y = layout.first_line(first.block) + line_after(lines, first.letters)
        elif top is not None and self._anchor_released and top[0] in layout:
            y = layout.first_line(top[0]) + min(top[1], max(0, layout.heights[layout.position(top[0])] - 1))
        else:
            return
        self.scroll_to(y=y, animate=False, immediate=True, force=kept is not None)

    def _text_width(self) -> int:
        return max(10, self.scrollable_content_region.width)

    def turn(self, pages: int) -> None:
        """Scroll by pages, at once: a scroll that waits for a refresh is lost if text that comes meanwhile scrolls."""
        y = self.scroll_y + pages * self.scrollable_content_region.height
        self.scroll_to(y=y, animate=False, immediate=True)
        self._check_anchor()  # a transcript shorter than the screen does not move, but must go on following

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._spinners.resume()
        if self._lays_out:
            return
        self._in_sight = None
        self._check_anchor()  # ScrollView does not do it: back at the bottom, the transcript follows again

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self.post_message(self.WheelUp())

    def on_resize(self) -> None:
        self._frame_s = 0
        self._note_first_in_sight()
        self._redraw_all()

    def _note_first_in_sight(self) -> None:
        found = self.block_layout.at_line(round(self.scroll_y)) if self._anchor_released else None
        if self._in_sight is None and found is not None:
            block, line, _ = found
            self._in_sight = _InSight(block, letters_of(self._drawing.first_lines(block, self._laid_width, line)))

    def on_click(self, event: events.Click) -> None:
        """One click opens a sub-agent, two copy the word, three the line."""
        widget, at = self.screen.get_widget_and_offset_at(event.screen_x, event.screen_y)
        if widget is not self or at is None:
            return
        if event.chain == 1 and self.text_selection is None:
            place = self.block_layout.at_line(at.y)
            if place is not None and isinstance(place[0], ToolBlock) and place[0].agent is not None:
                self.post_message(self.AgentChosen(place[0]))
        if event.chain not in (2, 3):
            return
        event.prevent_default()
        found = self._drawn_line(at.y)
        text = line_text(found[0]) if found is not None else ""
        span = word_at(text, at.x) if event.chain == 2 else (0, len(text))
        if span is not None:
            self.screen.selections = {self: Selection(Offset(span[0], at.y), Offset(span[1], at.y))}
            self.screen.post_message(events.TextSelected())

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._palette = None
        self._redraw_all()

    def palette(self) -> Palette:
        if self._palette is None:
            self._palette = palette_in(self.app)
        return self._palette

    def _whole_lines(self, block: Block) -> list[Line]:
        return self._drawing.whole(block, self._text_width())

    def _lines(self, block: Block) -> list[Line]:
        lines = self._drawing.lines(block, self._text_width())
        if self._drawing.going and not self._draws_on:
            self._draws_on = True
            call_once_after(self, _BETWEEN_SLICES_S, self._draw_on)
        return lines

    def _draw_on(self) -> None:
        if self._keys.waits:
            call_once_after(self, _AFTER_KEY_S, self._draw_on)
            return
        done = self._drawing.go_on()
        if done is not None:
            self._lay_out_soon(self.block_layout.position(done))
        self._draws_on = bool(self._drawing.going)
        if self._draws_on:
            call_once_after(self, _BETWEEN_SLICES_S, self._draw_on)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return whole rows. Of rows that scroll Textual makes all anew, which takes ten times as long as this."""
        began = time.thread_time()
        look = self.rich_style, self._text_width(), self.outer_size.width, tuple(self.get_line_filters())
        if look != self._look:
            self._look = look
            self._rows.clear()
        top = round(self.scroll_y)
        rows = [self._row(top + y, look) for y in crop.line_range]
        self._painting_s += time.thread_time() - began
        return rows if crop.column_span == (0, look[2]) else [row.crop(*crop.column_span) for row in rows]

    def _row(self, line: int, look: _RowLook) -> Strip:
        drawn, key, animated = self._drawn_line(line) or ([], None, False)
        marks = self._has_marks
        keeps = not (animated or marks)
        if keeps and (known := self._rows.get(key)) is not None:
            return known
        style, text_width, width, filters = look
        strip = turned(Strip(drawn), self._spinners.frame) if animated else Strip(drawn)
        strip = self._marked(strip, line) if marks else strip
        strip = strip.apply_style(style).crop_extend(0, text_width, style)
        left = self.styles.padding.left
        segments = [Segment(" " * left, style), *strip, Segment(" " * (width - left - text_width), style)]
        for each in filters:
            segments = each.apply(segments, self.background_colors[1])
        row = Strip(segments, width)
        if keeps:
            self._rows[key] = row
            if len(self._rows) > _MAX_ROWS:
                del self._rows[next(iter(self._rows))]
        return row

    def render_line(self, y: int) -> Strip:
        """Return the text of a row with its place in the conversation, of which the mouse makes a selection."""
        line, width = round(self.scroll_y) + y, self._text_width()
        found = self._drawn_line(line)
        strip = Strip(found[0] if found is not None else []).apply_style(self.rich_style)
        return strip.crop_extend(0, width, self.rich_style).apply_offsets(0, line)

    def _drawn_line(self, line: int) -> tuple[Line, tuple[object, ...], bool] | None:
        """Return a line, the key of all it depends on, and whether it begins with a spinner; None below the last."""
        place = self.block_layout.at_line(line)
        if place is None:
            return None
        block, within, height = place
        lines = self._lines(block)
        if len(lines) != height:
            self._lay_out_soon(self.block_layout.position(block))
        if within >= len(lines):
            return None
        animated = is_animated(block) and within == self._drawing.head_line(block)
        return lines[within], (block, block.version, within), animated

    @property
    def _has_marks(self) -> bool:
        return self.is_attached and self.text_selection is not None

    def _marked(self, strip: Strip, line: int) -> Strip:
        selection = self.text_selection
        span = selection.get_span(line) if selection is not None else None
        if span is None or any(map(is_of_picture, strip)):
            return strip
        style: Style = self.screen.get_component_rich_style("screen--selection")
        return marked(strip, span, style)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        layout = self.block_layout
        return self._drawing.copied(layout.blocks, layout.ends, self._text_width(), selection), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
