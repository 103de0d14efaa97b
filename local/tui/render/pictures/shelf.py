"""The images that are on the screen: each is decoded when it is first drawn, and forgotten when others need its place.

Until an image is decoded, and if it cannot be, it takes no lines: its kind and size are in the text beside it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakSet

from rich.segment import Segment

from ccb.tunnel.wire.content.images import image_size
from ccb.tunnel.wire.dataclass import dataclass

from ....session.images import PictureData
from ....terminal.asking.graphics import Protocol
from .cells import MAX_CELLS, block_row, image_row
from .decoding import NotDecoded, Picture, decoded, on_white
from .painter import Painter, Prepared

Line = list[Segment]

MAX_SHOWN = 200
_MAX_SHOWN_CELLS = 80_000
"""Images that are ready to be drawn, and all their cells: more than a transcript draws around its end, so that it never
asks for one that had to go for another one of the same screen."""

_MAX_PIXELS = 16_000_000  # of an image that is decoded without being asked to
_COLUMNS, _ROWS = 80, 20
_LARGE_COLUMNS, _LARGE_ROWS = MAX_CELLS - 1, 44
_INDENT = 2


@dataclass(frozen=True)
class _Size:
    columns: int
    rows: int

    @property
    def cells(self) -> int:
        return self.columns * self.rows


@dataclass(frozen=True)
class _Shown:
    number: int
    lines: list[Line]
    redraw: Callable[[], None]


_Key = tuple[PictureData, _Size]


class PictureShelf:
    """`write` sends text to the terminal, `start` runs a coroutine. Without a `painter` no image is drawn."""

    def __init__(self, write: Callable[[str], None], start: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self.painter: Painter | None = None
        self._write = write
        self._start = start
        self._shown: OrderedDict[_Key, _Shown] = OrderedDict()  # the one drawn last is the last one
        self._waiting: OrderedDict[_Key, Callable[[], None]] = OrderedDict()
        self._not_decoded: WeakSet[PictureData] = WeakSet()
        self._missed: list[Callable[[], None]] = []  # what was drawn before there was a painter
        self._works = False

    def lines(self, picture: PictureData, width: int, *, large: bool, redraw: Callable[[], None]) -> list[Line]:
        """Return the lines of an image at most `width` cells wide. There are none until it is decoded, after which
        `redraw` is called."""
        if self.painter is None:
            self._missed = [*self._missed[1 - MAX_SHOWN :], redraw]
            return []
        size = None if picture in self._not_decoded else _fitting(picture, self.painter.cell, width, large=large)
        if size is None:
            return []
        key = picture, size
        if key in self._shown:
            self._shown.move_to_end(key)
            return self._shown[key].lines
        self._waiting[key] = redraw
        if not self._works:
            self._works = True
            self._start(self._work())
        return []

    def use(self, painter: Painter | None) -> None:
        """Draw with another painter from now on."""
        self.forget_all()
        self.painter = painter
        missed, self._missed = self._missed, []
        for redraw in missed:
            redraw()

    def forget_all(self) -> None:
        """Forget all images, also in the terminal. What is on the screen is decoded anew."""
        shown, self._shown = self._shown, OrderedDict()
        for each in shown.values():
            self._forget(each)

    def forgotten(self) -> str:
        """Return what makes the terminal forget all images."""
        painter = self.painter
        return "" if painter is None else "".join(painter.forget(each.number) for each in self._shown.values())

    def _forget(self, shown: _Shown) -> None:
        if self.painter is not None:
            self._write(self.painter.forget(shown.number))
        shown.redraw()

    async def _work(self) -> None:
        """Decode what waits, one image after the other."""
        try:
            while self._waiting and self.painter is not None:
                key, redraw = self._waiting.popitem()  # the person looks at what was drawn last
                painter = self.painter
                try:
                    prepared, lines = await asyncio.to_thread(_prepared, painter, self._free_number(), *key)
                except NotDecoded:
                    self._not_decoded.add(key[0])
                    continue
                if painter is self.painter:
                    self._write(painter.take(prepared))
                    self._shown[key] = _Shown(prepared.number, lines, redraw)
                redraw()
        finally:
            self._works = False

    def _free_number(self) -> int:
        while len(self._shown) >= MAX_SHOWN or sum(size.cells for _, size in self._shown) > _MAX_SHOWN_CELLS:
            self._forget(self._shown.popitem(last=False)[1])
        used = {each.number for each in self._shown.values()}
        return next(number for number in range(1, MAX_CELLS) if number not in used)


def _fitting(picture: PictureData, cell: tuple[int, int], width: int, *, large: bool) -> _Size | None:
    """Return the cells that an image takes: as many as its pixels need, or as there is room for. None if it has no
    pixels or too many."""
    pixels = image_size(picture.head)
    if pixels is None or not all(pixels) or pixels[0] * pixels[1] > _MAX_PIXELS:
        return None
    columns, rows = pixels[0] / cell[0], pixels[1] / cell[1]
    most_columns = min(width - _INDENT, _LARGE_COLUMNS if large else _COLUMNS)
    most_rows = _LARGE_ROWS if large else _ROWS
    share = min(1.0, most_columns / columns, most_rows / rows)
    size = _Size(max(1, round(columns * share)), max(1, round(rows * share)))
    return size if most_columns > 0 else None


def _prepared(painter: Painter, number: int, picture: PictureData, size: _Size) -> tuple[Prepared, list[Line]]:
    """Decode and encode an image, and draw its lines. Raise NotDecoded. Blocks."""
    width, height = size.columns * painter.cell[0], size.rows * painter.cell[1]
    try:
        whole = decoded(base64.b64decode(picture.data), max(width, height))
    except binascii.Error:
        raise NotDecoded("its data is damaged") from None
    indent = Segment(" " * _INDENT)
    if painter.protocol is Protocol.BLOCKS:
        small = on_white(whole).resize((size.columns, 2 * size.rows))
        blank = Prepared(number, small, {}, "")
        return blank, [[indent, *row] for row in _half_blocks(small)]
    scaled = (whole.convert("RGBA") if painter.protocol is Protocol.KITTY else on_white(whole)).resize((width, height))
    lines = [[indent, image_row(number, row, size.columns)] for row in range(size.rows)]
    return painter.prepared(number, scaled, size.columns, size.rows), lines


def _half_blocks(picture: Picture) -> list[Line]:
    width, data = picture.size[0], picture.tobytes()
    pixels = list(zip(data[::3], data[1::3], data[2::3], strict=True))
    rows = [pixels[at : at + width] for at in range(0, len(pixels), width)]
    return [block_row(upper, lower) for upper, lower in zip(rows[::2], rows[1::2], strict=True)]
