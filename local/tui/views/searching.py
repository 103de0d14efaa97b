"""A transcript that is searched: the lines that hold what the person looks for are marked and walked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ccb.tunnel.plain_text import neutralise

from ..model.blocks import Block, FileDiffBlock, MarkdownBlock, NoticeBlock, PromptBlock, ThoughtBlock, ToolBlock
from ..render.pictures import PictureShelf
from ..widgets.lines.drawn_lines import texts_of
from ..widgets.transcript import Transcript

_CONTEXT_LINES = 3
"""Lines above a found line that stay on the screen."""
_AT_ONCE = 50  # blocks that are searched before other work gets its turn
_MARKUP = re.compile(r"[*_`~]")
_FOUND, _CURRENT = Style(reverse=True), Style(reverse=True, bold=True, underline=True)

Found = tuple[Block, int]
"""A block, and the line of it that holds what is sought."""


class SearchedBlocks(Transcript):
    """Shows all of every block. `sought` is marked wherever it stands, in upper or lower case."""

    def __init__(self, cwd: str = "", shelf: PictureShelf | None = None) -> None:
        super().__init__(cwd, shelf=shelf)
        self._drawing.details = True
        self.sought = ""
        self.found: list[Found] = []
        self.at = -1  # which of `found` the person looks at

    def settle(self) -> None:
        """Lay out now what has changed, so that lines have their places."""
        self._lay_out()

    async def search(self, text: str) -> None:
        """Find the lines with `text`, and go to the last one above the end of the screen."""
        self.sought, self.found, self.at = text.lower(), [], -1
        found: list[Found] = []
        for number, block in enumerate(tuple(self.blocks) if text else ()):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if may_hold(block, self.sought):
                lines = enumerate(texts_of(self._whole_lines(block)))
                found += [(block, line) for line, text in lines if self.sought in text.lower()]
        self.found = found
        self.settle()
        self.refresh()
        if found:
            bottom = round(self.scroll_y) + self.size.height
            before = [at for at, each in enumerate(found) if (self._line_of(each) or 0) < bottom]
            self.go_to(before[-1] if before else 0)

    def step(self, by: int) -> None:
        """Go to the next found line, or the one before; from the last one to the first."""
        if self.found:
            self.go_to((self.at + by) % len(self.found))

    def go_to(self, at: int) -> None:
        """Bring a found line on the screen."""
        self.at = at
        self.bring_up(*self.found[at])

    def bring_up(self, block: Block, line: int) -> None:
        """Bring a line of a block on the screen, near its top."""
        layout = self._block_layout
        position = layout.position(block)
        if position == len(layout.blocks):
            return  # it has made room for newer ones
        first, rows = position, 0
        while first > 0 and rows < self.size.height:  # what comes on the screen above it gets its true height
            first -= 1
            rows += len(self._lines(layout.blocks[first]))
        self._keep_in_place = block, _CONTEXT_LINES - line
        self.release_anchor()
        self._lay_out_soon(first)
        self.refresh()

    def block_here(self) -> Block | None:
        """Return the block of the found line, else the first one on the screen."""
        if 0 <= self.at < len(self.found):
            return self.found[self.at][0]
        place = self._block_layout.at_line(round(self.scroll_y))
        return place[0] if place is not None else None

    def _line_of(self, found: Found) -> int | None:
        layout = self._block_layout
        position = layout.position(found[0])
        return layout.start(position) + found[1] if layout.is_laid_out(position) else None

    @property
    def _has_marks(self) -> bool:
        return bool(self.sought) or super()._has_marks

    def _selected(self, strip: Strip, line: int) -> Strip:
        return super()._selected(self._marked(strip, line) if self.sought else strip, line)

    def _marked(self, strip: Strip, line: int) -> Strip:
        """Return the line with what is sought marked."""
        text = strip.text
        lower = text.lower()
        if self.sought not in lower or len(lower) != len(text):
            return strip
        current = 0 <= self.at < len(self.found) and self._line_of(self.found[self.at]) == line
        parts, cells, start = [], 0, 0
        while (place := lower.find(self.sought, start)) >= 0:
            end = place + len(self.sought)
            left, right = cell_len(text[:place]), cell_len(text[:end])
            inside = strip.crop(left, right)
            style = _CURRENT if current else _FOUND
            parts += [strip.crop(cells, left), Strip(Segment.apply_style(inside, post_style=style), right - left)]
            cells, start = right, end
        return Strip.join([*parts, strip.crop(cells, strip.cell_length)])


def may_hold(block: Block, sought: str) -> bool:
    """Return whether what is drawn of a block may hold a text. Only those are drawn to be searched."""
    if isinstance(block, ToolBlock) and block.agent is not None:
        return True
    plain = _MARKUP.sub("", sought)
    for text in _texts(block):
        lower = (neutralise(text) if "\x1b" in text else text).lower()
        if sought in lower or plain in _MARKUP.sub("", lower):
            return True
    return False


def _texts(block: Block) -> Sequence[str]:
    if isinstance(block, PromptBlock | MarkdownBlock | ThoughtBlock | NoticeBlock):
        return [block.text]
    if isinstance(block, ToolBlock):
        return [block.name, block.result, block.output, *_leaves(block.tool_input), *_leaves(block.patch)]
    if isinstance(block, FileDiffBlock):
        return [block.path, block.note, *_leaves(block.patch)]
    return []


def _leaves(value: object) -> Iterator[str]:
    """Yield the texts in a JSON value."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield str(value)
