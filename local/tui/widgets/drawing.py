"""Draws blocks to lines, and keeps them.

A drawn line is a list of segments. A `Strip` is made only of what is on the screen: thousands of them would make each
collection of garbage a pause that can be felt.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from rich.console import Console
from rich.segment import Segment
from textual.selection import Selection
from textual.strip import Strip

from ccb.tunnel.wire.dataclass import dataclass

from ...terminal.keymap import Keymap
from ...transcript.blocks import Block, MarkdownBlock, PicturedBlock, ToolBlock
from ..rendering.block_renderer import SPINNER, BlockRenderer
from ..rendering.markdown import copied_text
from ..rendering.pictures import DrawnPicture, PictureShelf, is_of_picture
from ..rendering.themes import Palette
from ..rendering.untrusted_text import without_hidden_link

MAX_BLOCKS = 10_000
MAX_BYTES = 12_000_000
_SHARE_FOR_EARLIER = 3 / 4  # share of the limits for earlier events; the rest is for new ones


class BlockLayout:
    """Knows which block is at which line. `heights` are set by the transcript; `lay_out` makes line numbers of them."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.heights: list[int] = []
        self._laid: list[Block | None] = []  # the blocks at the last `lay_out`; None for one that was removed since
        self.ends: list[int] = []  # the line after each of them
        self._weights: dict[Block, int] = {}
        self._bytes = 0

    def __contains__(self, block: Block) -> bool:
        return block in self._weights

    @property
    def is_full(self) -> bool:
        return len(self.blocks) > MAX_BLOCKS or self._bytes > MAX_BYTES

    @property
    def has_room_for_earlier(self) -> bool:
        return len(self.blocks) < MAX_BLOCKS * _SHARE_FOR_EARLIER and self._bytes < MAX_BYTES * _SHARE_FOR_EARLIER

    @property
    def lines(self) -> int:
        return self.ends[-1] if self.ends else 0

    def position(self, block: Block) -> int:
        """Return the index of a block, or the number of blocks without it. It is nearly always one of the last."""
        for position in range(len(self.blocks) - 1, -1, -1):
            if self.blocks[position] is block:
                return position
        return len(self.blocks)

    def insert(self, position: int, blocks: Sequence[Block]) -> None:
        """Put blocks in at an index, without a height yet."""
        self.blocks[position:position] = blocks
        self.heights[position:position] = [0] * len(blocks)
        for block in blocks:
            self.weigh(block)

    def remove(self, position: int) -> Block:
        block = self.blocks.pop(position)
        del self.heights[position]
        self._bytes -= self._weights.pop(block)
        if block in self._laid:
            self._laid[self._laid.index(block)] = None
        return block

    def weigh(self, block: Block) -> None:
        weight = block.weight()
        self._bytes += weight - self._weights.get(block, 0)
        self._weights[block] = weight

    def lay_out(self) -> None:
        """Compute the line numbers. Until the next time, blocks that are added or taken away shift nothing of them."""
        self._laid = [*self.blocks]
        self.ends = list(accumulate(self.heights))

    def start(self, position: int) -> int | None:
        """Return the first line of the block at an index, None if it had no place at the last `lay_out`."""
        return self.ends[position] - self.heights[position] if position < len(self.ends) else None

    def first_line(self, block: Block) -> int:
        return self.start(self.position(block)) or 0

    def at_line(self, line: int) -> tuple[Block, int, int] | None:
        """Return the block at a line, the index of the line in it, and its number of lines. None without a block."""
        position = bisect_right(self.ends, line)
        block = self._laid[position] if position < len(self._laid) else None
        if block is None:
            return None
        start = self.ends[position - 1] if position else 0
        return block, line - start, self.ends[position] - start


Line = list[Segment]

_ESTIMATED_TOOL_LINES = 2


def draw_lines(console: Console, renderer: BlockRenderer, block: Block, width: int) -> list[Line]:
    return [line for part in draw_parts(console, renderer, block, width) for line in part]


def draw_parts(console: Console, renderer: BlockRenderer, block: Block, width: int) -> Iterator[list[Line]]:
    options = console.options.update(width=width, height=None, highlight=False)
    begun = bool(isinstance(block, MarkdownBlock) and block.opening.lines and block.opening.columns is None)  # in code
    blank: list[Line] = []
    for renderable in renderer.render(block):
        with console.use_theme(renderer.palette.markdown):
            drawn = console.render_lines(renderable, options, pad=False, new_lines=False)
        lines: list[Line] = []
        for whole in drawn:  # hidden links and control segments go: the remote must not make the terminal do anything
            line = [without_hidden_link(segment) for segment in whole if not segment.control]
            if line_text(line).strip():
                lines += [*blank, line]
                begun, blank = True, []
            elif begun:
                blank.append(line)
        yield lines


def line_text(line: Line) -> str:
    return "".join(segment.text for segment in line)


def letters_of(lines: Sequence[Line]) -> int:
    """Return the number of letters and digits in `lines`, which is the same at every width."""
    return sum(map(str.isalnum, "".join(map(line_text, lines))))


def line_after(lines: Sequence[Line], letters: int) -> int:
    for index, line in enumerate(lines):
        letters -= letters_of([line])
        if letters < 0:
            return index
    return max(0, len(lines) - 1)


def texts_of(lines: Sequence[Line]) -> list[str]:
    return ["".join(segment.text for segment in line if not is_of_picture(segment)) for line in lines]


def turned(strip: Strip, frame: int) -> Strip:
    """Return the first line of a running tool with its spinner in another state."""
    first, *others = strip
    spinner = Segment(SPINNER[frame % len(SPINNER)] + first.text[1:], first.style)
    return Strip([spinner, *others], strip.cell_length)


def estimated_height(block: Block, width: int) -> int:
    """Guess the number of lines of a block that is far from what is shown."""
    return _ESTIMATED_TOOL_LINES if isinstance(block, ToolBlock) else 2 + block.size() // width


CacheKey = tuple[object, ...]


class _Going(NamedTuple):
    """A drawing that is not done, with the lines that it has so far."""

    key: CacheKey
    lines: list[Line]
    parts: Iterator[list[Line]]


_MAX_CACHED_LINES = 1_000
_MIN_BLOCKS = 8  # always cached, so that a screen of very long blocks is not drawn anew for every line
_SLICE_S = 0.008  # CPU seconds in which a block is drawn, or begun
_UNWRAPPED = 4_000  # columns of a drawing to copy from
_MAX_UNWRAPPED = 200_000  # characters of a block; more is copied as it is on the screen


@dataclass(eq=False)
class TranscriptDrawing:
    """Draws blocks when their lines are asked for, and keeps at most `max_lines` lines, but always the blocks used
    last. `changed` is called with a block whose picture has come. A block that is not done within a slice of CPU time
    keeps the lines that it had, or has those that are done; `go_on` draws its rest."""

    canvas: Callable[[], tuple[Console, Palette]]
    changed: Callable[[Block], None]
    cwd: str
    keymap: Keymap
    shelf: PictureShelf | None
    max_lines: int = _MAX_CACHED_LINES
    details: bool = False
    _count: int = 0  # of the lines that are kept
    _lines: dict[Block, list[Line]] = field(default_factory=dict)  # the block used last is the last one
    _heights: dict[Block, tuple[CacheKey, int]] = field(default_factory=dict)
    going: dict[Block, _Going] = field(default_factory=dict)

    def height(self, block: Block, width: int) -> int | None:
        """Return the number of lines of a block, or None if it has to be drawn for that."""
        known, height = self._heights.get(block, (None, 0))
        return height if known == (width, block.version) else None

    def lines(self, block: Block, width: int) -> list[Line]:
        if block in self._lines and self.height(block, width) is not None:
            lines = self._lines[block] = self._lines.pop(block)
            return lines
        key, going = (width, block.version), self.going.get(block)
        if going is None or going.key != key:
            going = self.going[block] = _Going(key, [], self._parts(block, width))
            if self._finished(block, going):
                return going.lines
        return self._lines.get(block) or going.lines

    def whole(self, block: Block, width: int) -> list[Line]:
        lines = self.lines(block, width)
        while block in self.going:
            going = self.going[block]
            lines = going.lines if self._finished(block, going) else lines
        return lines

    def go_on(self) -> Block | None:
        """Draw a slice of the block that was asked for last. Return it if that is all of it."""
        block = next(reversed(self.going), None)
        return block if block is not None and self._finished(block, self.going[block]) else None

    def _finished(self, block: Block, going: _Going) -> bool:
        """Draw a slice of a block. If that is all of it, keep its lines in place of those used longest ago."""
        began = time.thread_time()
        for part in going.parts:
            going.lines.extend(part)
            if time.thread_time() - began > _SLICE_S:
                return False
        del self.going[block]
        self._drop_lines(block)
        self._heights[block] = going.key, len(going.lines)
        self._lines[block] = going.lines
        self._count += len(going.lines)
        while self._count > self.max_lines and len(self._lines) > _MIN_BLOCKS:
            self._drop_lines(next(iter(self._lines)))
        return True

    def _drop_lines(self, block: Block) -> None:
        self._count -= len(self._lines.pop(block, ()))

    def forget(self, block: Block) -> None:
        self.going.pop(block, None)
        self._drop_lines(block)
        self._heights.pop(block, None)

    def outdate(self) -> None:
        """All blocks have to be drawn anew, because something changed that is not in their versions."""
        self.going.clear()
        self._heights.clear()

    def is_tight(self, block: Block) -> bool:
        """Return whether a block has no blank line before it. With its details, a call is not the item of a list."""
        return block.tight and not (self.details and isinstance(block, ToolBlock))

    def head_line(self, block: Block) -> int:
        return 0 if self.is_tight(block) else 1

    def copied(self, blocks: Sequence[Block], ends: Sequence[int], width: int, selection: Selection) -> str:
        """Return the text of a selection, in logical lines. `ends` are the numbers of the lines behind the blocks."""
        console, palette = self.canvas()
        renderer = BlockRenderer(palette, self.details, self.cwd, copied_from=width)
        first = selection.start.y if selection.start is not None else 0
        last = selection.end.y if selection.end is not None else ends[-1] if ends else 0
        copied = ""
        for block, end in zip(blocks, ends, strict=False):
            rows = texts_of(self.whole(block, width)) if end > first else []
            top = end - len(rows)
            if top > last:
                break
            small = rows and block.size() <= _MAX_UNWRAPPED
            whole = draw_lines(console, renderer, block, _UNWRAPPED) if small else []
            text = copied_text(rows, texts_of(whole), selection, top)
            copied += ("\n" if self.is_tight(block) else "\n\n") + text if copied and text else text
        return copied

    def first_lines(self, block: Block, width: int, count: int) -> list[Line]:
        lines: list[Line] = []
        for part in self._parts(block, width):
            lines += part
            if len(lines) >= count:
                break
        return lines[:count]

    def _parts(self, block: Block, width: int) -> Iterator[list[Line]]:
        console, palette = self.canvas()
        renderer = BlockRenderer(palette, self.details, self.cwd, 0, self.keymap, self._pictures)
        before: list[Line] = [] if self.is_tight(block) else [[]]
        for part in draw_parts(console, renderer, block, width):
            yield [*before, *part]
            before = []

    def _pictures(self, block: PicturedBlock) -> Iterator[DrawnPicture]:
        if self.shelf is not None:
            for picture in block.pictures:
                yield DrawnPicture(self.shelf, picture, self.details, partial(self.changed, block))
