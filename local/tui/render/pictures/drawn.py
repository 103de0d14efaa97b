"""An image of a result among the lines of its block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from rich.console import Console, ConsoleOptions
from rich.segment import Segment

from ccb.tunnel.wire.dataclass import dataclass

from ....session.images import PictureData
from ...model.blocks import Block
from .shelf import PictureShelf

Line = list[Segment]


class PictureSource(Protocol):
    """Draws images."""

    def lines(self, block: Block, picture: PictureData, width: int, *, large: bool) -> list[Line]:
        """Return the lines of an image of a block; none until it is decoded, or if it cannot be."""


@dataclass(frozen=True)
class PicturesOf:
    """The images of one transcript, from the shelf that all share. `redraw` draws a block anew."""

    shelf: PictureShelf
    redraw: Callable[[Block], None]

    def lines(self, block: Block, picture: PictureData, width: int, *, large: bool) -> list[Line]:
        """Return the lines of an image of a block."""
        return self.shelf.lines(picture, width, large=large, redraw=partial(self.redraw, block))


@dataclass(frozen=True)
class DrawnPicture:
    """An image of `block`; `large`: as large as the screen allows."""

    source: PictureSource
    block: Block
    picture: PictureData
    large: bool

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for line in self.source.lines(self.block, self.picture, options.max_width, large=self.large):
            yield from line
            yield Segment.line()
