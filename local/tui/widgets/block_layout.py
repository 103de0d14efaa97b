"""The blocks of the transcript in order, with the lines and the memory that each one takes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from ..model.blocks import Block

MAX_BLOCKS = 10_000
MAX_BYTES = 12_000_000
_SHARE_FOR_EARLIER = 3 / 4  # share of the limits for earlier events; the rest is for new ones


class BlockLayout:
    """Knows which block is at which line. `heights` are set by the transcript; `lay_out` makes line numbers of them."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.heights: list[int] = []
        self._laid: list[Block | None] = []  # the blocks at the last `lay_out`; None for one that was removed since
        self._ends: list[int] = []  # the line after each of them
        self._weights: dict[Block, int] = {}
        self._bytes = 0

    def __contains__(self, block: Block) -> bool:
        return block in self._weights

    @property
    def is_full(self) -> bool:
        """Whether the oldest blocks have to be removed."""
        return len(self.blocks) > MAX_BLOCKS or self._bytes > MAX_BYTES

    @property
    def has_room_for_earlier(self) -> bool:
        """Whether there is room for earlier blocks."""
        return len(self.blocks) < MAX_BLOCKS * _SHARE_FOR_EARLIER and self._bytes < MAX_BYTES * _SHARE_FOR_EARLIER

    @property
    def lines(self) -> int:
        """The number of lines at the last `lay_out`."""
        return self._ends[-1] if self._ends else 0

    @property
    def ends(self) -> Sequence[int]:
        """For each block, the number of the line after it at the last `lay_out`."""
        return self._ends

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
        """Remove and return the block at an index."""
        block = self.blocks.pop(position)
        del self.heights[position]
        self._bytes -= self._weights.pop(block)
        if block in self._laid:
            self._laid[self._laid.index(block)] = None
        return block

    def weigh(self, block: Block) -> None:
        """Count the memory of a block that is new or has changed."""
        weight = block.weight()
        self._bytes += weight - self._weights.get(block, 0)
        self._weights[block] = weight

    def lay_out(self) -> None:
        """Compute the line numbers from the heights. Until the next time, `at_line` knows the blocks of now: a block
        that is added or taken away meanwhile must not shift what is painted before that."""
        self._laid = [*self.blocks]
        self._ends = list(accumulate(self.heights))

    def is_laid_out(self, position: int) -> bool:
        """Return whether the block at an index had a place at the last `lay_out`."""
        return position < len(self._ends)

    def start(self, position: int) -> int:
        """Return the first line of the block at an index."""
        return self._ends[position] - self.heights[position]

    def end(self, position: int) -> int:
        """Return the line after the block at an index."""
        return self._ends[position]

    def overlaps(self, block: Block, first: int, end: int) -> bool:
        """Return whether a block had one of the lines from `first` to before `end` at the last `lay_out`."""
        position = self.position(block)
        return self.is_laid_out(position) and self.end(position) > first and self.start(position) < end

    def at_line(self, line: int) -> tuple[Block, int, int] | None:
        """Return the block at a line, which of its lines that is, and how many it had at the last `lay_out`; None below
        the last block, and where a block was that is removed."""
        position = bisect_right(self._ends, line)
        block = self._laid[position] if position < len(self._laid) else None
        if block is None:
            return None
        start = self._ends[position - 1] if position else 0
        return block, line - start, self._ends[position] - start
