"""Where blocks are put: the transcript, or a list that becomes a part of it."""

from __future__ import annotations

from typing import Protocol

from .blocks import Block


class Page(Protocol):
    """An ordered collection of blocks."""

    def add(self, block: Block, *, before: Block | None = None) -> None: ...

    def update_block(self, block: Block) -> None: ...

    def take_away(self, block: Block) -> None: ...


class ListPage:
    """Blocks that are not shown yet."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def add(self, block: Block, *, before: Block | None = None) -> None:
        place = self.blocks.index(before) if before in self.blocks else len(self.blocks)
        self.blocks.insert(place, block)

    def update_block(self, block: Block) -> None:
        block.changed()

    def take_away(self, block: Block) -> None:
        if block in self.blocks:
            self.blocks.remove(block)
