"""Drawn blocks: the lines of those used last, and the heights of all."""

from __future__ import annotations

from textual.strip import Strip

from ..model.blocks import Block

Key = tuple[object, ...]

_AT_LEAST = (
    8  # blocks whose lines stay whatever their number, so that a screen of long ones is not drawn for every line
)


class LineCache:
    """Keeps at most `max_lines` lines, but always those of the few blocks used last. A key says what lines depend on: width,
    version and the like; what was kept under another key is not found."""

    def __init__(self, max_lines: int) -> None:
        self._max_lines = max_lines
        self._count = 0
        self._lines: dict[Block, list[Strip]] = {}  # the one used last is last
        self._heights: dict[Block, tuple[Key, int]] = {}

    def height(self, block: Block, key: Key) -> int | None:
        """How many lines the block has; None when that is not known."""
        known, height = self._heights.get(block, (None, 0))
        return height if known == key else None

    def lines(self, block: Block, key: Key) -> list[Strip] | None:
        """The lines of the block; None when they have to be drawn."""
        if block not in self._lines or self.height(block, key) is None:
            return None
        lines = self._lines[block] = self._lines.pop(block)
        return lines

    def keep(self, block: Block, key: Key, lines: list[Strip]) -> None:
        """Remember what was drawn."""
        self._let_go(block)
        self._heights[block] = key, len(lines)
        self._lines[block] = lines
        self._count += len(lines)
        while self._count > self._max_lines and len(self._lines) > _AT_LEAST:
            self._let_go(next(iter(self._lines)))

    def forget(self, block: Block) -> None:
        """The block is gone."""
        self._let_go(block)
        self._heights.pop(block, None)

    def clear(self) -> None:
        """Everything looks different now."""
        self._lines.clear()
        self._heights.clear()
        self._count = 0

    def _let_go(self, block: Block) -> None:
        self._count -= len(self._lines.pop(block, ()))
