"""A cache of drawn blocks: the lines of the recently drawn ones, and the heights of all."""

from __future__ import annotations

from ...model.blocks import Block
from .drawn_lines import Line

CacheKey = tuple[object, ...]

_MIN_BLOCKS = 8  # always cached, so that a screen of very long blocks is not drawn anew for every line


class LineCache:
    """Keeps at most `max_lines` lines, but always those of the few blocks used last. A key contains everything that the
    lines depend on, such as width and version; lines kept under another key are not found."""

    def __init__(self, max_lines: int) -> None:
        self._max_lines = max_lines
        self._count = 0
        self._lines: dict[Block, list[Line]] = {}  # the block used last is the last one
        self._heights: dict[Block, tuple[CacheKey, int]] = {}

    def height(self, block: Block, key: CacheKey) -> int | None:
        """Return the number of lines of a block, or None if it is not known."""
        known, height = self._heights.get(block, (None, 0))
        return height if known == key else None

    def lines(self, block: Block, key: CacheKey) -> list[Line] | None:
        """Return the lines of a block, or None if they have to be drawn."""
        if block not in self._lines or self.height(block, key) is None:
            return None
        lines = self._lines[block] = self._lines.pop(block)
        return lines

    def keep(self, block: Block, key: CacheKey, lines: list[Line]) -> None:
        """Remember the lines of a block, and forget those that were used longest ago."""
        self._drop_lines(block)
        self._heights[block] = key, len(lines)
        self._lines[block] = lines
        self._count += len(lines)
        while self._count > self._max_lines and len(self._lines) > _MIN_BLOCKS:
            self._drop_lines(next(iter(self._lines)))

    def forget(self, block: Block) -> None:
        """Forget a block that is no longer shown."""
        self._drop_lines(block)
        self._heights.pop(block, None)

    def outdated(self, block: Block) -> list[Line]:
        """Return the lines that a block had when it was drawn last, whatever has changed since; [] without any."""
        return self._lines.get(block, [])

    def outdate(self) -> None:
        """Find nothing any more: all blocks have to be drawn anew."""
        self._heights.clear()

    def _drop_lines(self, block: Block) -> None:
        self._count -= len(self._lines.pop(block, ()))
