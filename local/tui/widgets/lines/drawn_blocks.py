"""The lines of blocks. One that takes long is drawn in slices, between which the event loop turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ...model.blocks import Block
from .drawn_lines import Line
from .line_cache import CacheKey, LineCache

Draw = Callable[[], Iterator[list[Line]]]


class _Going:
    """A drawing that is not done, with the lines that it has so far."""

    def __init__(self, key: CacheKey, parts: Iterator[list[Line]]) -> None:
        self.key = key
        self.lines: list[Line] = []
        self._parts = parts

    def go_on(self, seconds: float) -> bool:
        """Draw for some CPU seconds, at least one part. Return whether the drawing is done."""
        began = time.thread_time()
        for part in self._parts:
            self.lines += part
            if time.thread_time() - began > seconds:
                return False
        return True


class DrawnBlocks:
    """Draws blocks when their lines are asked for, and keeps at most `max_lines` lines.

    A block that is not done within a slice of CPU time keeps the lines that it had; without any it has those that are
    done. `go_on` draws its rest."""

    def __init__(self, max_lines: int, slice_s: float) -> None:
        self._slice_s = slice_s
        self._kept = LineCache(max_lines)
        self._going: dict[Block, _Going] = {}

    def height(self, block: Block, key: CacheKey) -> int | None:
        """Return the number of lines of a block, or None if it has to be drawn for that."""
        return self._kept.height(block, key)

    def lines(self, block: Block, key: CacheKey, draw: Draw) -> list[Line]:
        """Return the lines of a block. `draw` draws it part by part. The key says everything they depend on."""
        kept = self._kept.lines(block, key)
        if kept is not None:
            return kept
        going = self._going.get(block)
        if going is None or going.key != key:
            going = self._going[block] = _Going(key, draw())
            if self._go_on(block, going):
                return going.lines
        return self._kept.outdated(block) or going.lines

    def whole(self, block: Block, key: CacheKey, draw: Draw) -> list[Line]:
        """Return all lines of a block, without a limit of time."""
        lines = self.lines(block, key, draw)
        while block in self._going:
            self._go_on(block, self._going[block])
            lines = self._kept.outdated(block)
        return lines

    @property
    def unfinished(self) -> bool:
        """Whether a block waits for the rest of its lines."""
        return bool(self._going)

    def go_on(self) -> Block | None:
        """Draw a slice of the block that was asked for last. Return it if that is all of it."""
        block = next(reversed(self._going), None)
        return block if block is not None and self._go_on(block, self._going[block]) else None

    def _go_on(self, block: Block, going: _Going) -> bool:
        if not going.go_on(self._slice_s):
            return False
        del self._going[block]
        self._kept.keep(block, going.key, going.lines)
        return True

    def forget(self, block: Block) -> None:
        """Forget a block that is no longer shown."""
        self._going.pop(block, None)
        self._kept.forget(block)

    def outdate(self) -> None:
        """All blocks have to be drawn anew, because something changed that is in no key."""
        self._going.clear()
        self._kept.outdate()
