"""How the blocks of a transcript become lines, and what a selection among these lines copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.console import Console
from textual.selection import Selection

from ...model.blocks import Block, PicturedBlock, ToolBlock
from ...render.block_renderer import BlockRenderer
from ...render.copying import copied_text
from ...render.pictures import DrawnPicture, PictureShelf
from ...theme.palette import Palette
from .drawn_blocks import DrawnBlocks
from .drawn_lines import Line, draw_lines, draw_parts, texts_of
from .line_cache import CacheKey

_MAX_CACHED_LINES = 1_000
_SLICE_S = 0.008  # CPU seconds in which a block is drawn, or begun
_UNWRAPPED = 4_000  # columns of a drawing to copy from
_MAX_UNWRAPPED = 200_000  # characters of a block; more is copied as it is on the screen


class TranscriptDrawing:
    """Draws blocks with the colours of `canvas`. `changed` is called with a block whose picture has come. `details`:
    all of tool output and thinking is shown."""

    def __init__(
        self,
        canvas: Callable[[], tuple[Console, Palette]],
        changed: Callable[[Block], None],
        cwd: str,
        more_key: str,
        shelf: PictureShelf | None,
    ) -> None:
        self.details = False
        self._canvas = canvas
        self._changed = changed
        self._cwd = cwd
        self._more_key = more_key
        self._shelf = shelf
        self._drawn = DrawnBlocks(_MAX_CACHED_LINES, _SLICE_S)
        self.forget = self._drawn.forget
        self.outdate = self._drawn.outdate
        self.go_on = self._drawn.go_on

    @property
    def unfinished(self) -> bool:
        """Whether a block waits for the rest of its lines."""
        return self._drawn.unfinished

    def key(self, block: Block, width: int) -> CacheKey:
        """Return what the lines of a block depend on."""
        return width, block.version

    def height(self, block: Block, width: int) -> int | None:
        """Return the number of lines of a block, or None if it has to be drawn for that."""
        return self._drawn.height(block, self.key(block, width))

    def lines(self, block: Block, width: int) -> list[Line]:
        """Return the lines of a block to show. The first one is blank unless the block is tight."""
        return self._drawn.lines(block, self.key(block, width), lambda: self._parts(block, width))

    def is_tight(self, block: Block) -> bool:
        """Return whether a block has no blank line before it. With its details, a call is not the item of a list."""
        return block.tight and not (self.details and isinstance(block, ToolBlock))

    def head_line(self, block: Block) -> int:
        """Return which line of a block is its first one that is not blank."""
        return 0 if self.is_tight(block) else 1

    def copied(self, blocks: Sequence[Block], ends: Sequence[int], width: int, selection: Selection) -> str:
        """Return the text of a selection, in logical lines. `ends` are the numbers of the lines behind the blocks."""
        console, palette = self._canvas()
        renderer = BlockRenderer(palette, self.details, self._cwd, copied_from=width)
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

    def whole(self, block: Block, width: int) -> list[Line]:
        """Return all lines of a block, however long they take."""
        return self._drawn.whole(block, self.key(block, width), lambda: self._parts(block, width))

    def first_lines(self, block: Block, width: int, count: int) -> list[Line]:
        """Return the first lines of a block at another width than that of now."""
        lines: list[Line] = []
        for part in self._parts(block, width):
            lines += part
            if len(lines) >= count:
                break
        return lines[:count]

    def _parts(self, block: Block, width: int) -> Iterator[list[Line]]:
        console, palette = self._canvas()
        renderer = BlockRenderer(palette, self.details, self._cwd, 0, self._more_key, self._pictures)
        before: list[Line] = [] if self.is_tight(block) else [[]]
        for part in draw_parts(console, renderer, block, width):
            yield [*before, *part]
            before = []

    def _pictures(self, block: PicturedBlock) -> Iterator[DrawnPicture]:
        if self._shelf is not None:
            for picture in block.pictures:
                yield DrawnPicture(self._shelf, picture, self.details, partial(self._changed, block))
