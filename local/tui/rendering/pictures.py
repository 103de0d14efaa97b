"""Pictures: decoded within limits by Pillow, which the extra `ccb[images]` brings, then scaled or drawn as text.

A picture may come from a host, so only the formats that the Messages API takes are decoded, and only up to a number of
pixels that its head must announce. In the transcript each cell is a half block that shows two pixels.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import io
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.color import Color
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.prompt_content import image_size, image_type

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from ...transcript.blocks import PictureData


MAX_DECODED_PIXELS = 64_000_000  # most pixels of an image that is decoded: they take a quarter of a gigabyte
MAX_DRAWN_PIXELS = 16_000_000  # most pixels of an image that is decoded without being asked to, to be drawn
GOOD_PIXELS = 2_000
"""Width and height to which images are scaled for the model: the most that a request with many images may have."""

HALF_BLOCK = "▀"
MAX_KEPT = 200
_MAX_KEPT_CELLS = 80_000
"""Pictures whose lines are kept, and all their cells: more than a transcript draws around its end, so that it never
asks for one that had to go for another one of the same screen."""

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
_TRIES = ((GOOD_PIXELS, "PNG"), (GOOD_PIXELS, "JPEG"), (1_000, "JPEG"))
_QUALITY = 80
_CELL = (10, 20)  # pixels for which a picture gets a cell, if there is room
_ROOM, _LARGE_ROOM = (80, 20), (255, 44)  # columns and rows
_INDENT = 2
_DRAWN_BY_CCB = Style(meta={"picture": True})

Line = list[Segment]
_Key: TypeAlias = "tuple[PictureData, tuple[int, int]]"  # a picture, and the columns and rows that it may take


class NotDecoded(Exception):
    """An image cannot be decoded; the text says why."""


def can_decode() -> bool:
    """Return whether Pillow is installed. It is not loaded."""
    return importlib.util.find_spec("PIL") is not None


def decoded(data: bytes, most_each_way: int, most_pixels: int = MAX_DECODED_PIXELS) -> Picture:
    """Return an image upright, scaled to at most `most_each_way` pixels each way. Raise NotDecoded. Blocks."""
    size = image_size(data) if image_type(data[:16]) is not None else None
    if size is None or not all(size):
        raise NotDecoded("it is no image that ccb knows")
    if size[0] * size[1] > most_pixels:
        raise NotDecoded(f"{size[0]:,} x {size[1]:,} pixels are too many to decode")
    if not can_decode():
        raise NotDecoded("Pillow is not installed: pip install 'ccb[images]'")
    from PIL import Image, ImageOps

    try:
        picture: Picture = Image.open(io.BytesIO(data), formats=_FORMATS)
        if picture.size[0] * picture.size[1] > most_pixels:
            raise NotDecoded("it has more pixels than its head says")
        picture.draft("RGB", (most_each_way, most_each_way))
        picture.thumbnail((most_each_way, most_each_way))
        return ImageOps.exif_transpose(picture)
    except NotDecoded:
        raise
    except Exception as error:  # decoders of damaged images raise nearly anything
        raise NotDecoded("it is damaged, or of a kind that Pillow does not know") from error


def scaled(data: bytes, most_bytes: int) -> bytes:
    """Return a PNG or JPEG image of at most GOOD_PIXELS each way and `most_bytes`. Raise NotDecoded. Blocks."""
    for pixels, form in _TRIES:
        if form == "PNG" and image_type(data) == "image/jpeg":
            continue  # it would only become larger, and may have colours for print, which PNG has not
        picture = decoded(data, pixels)
        made = io.BytesIO()
        (picture.convert("RGB") if form == "JPEG" else picture).save(made, form, quality=_QUALITY)
        if made.tell() <= most_bytes:
            return made.getvalue()
    raise NotDecoded("it stays too large for the model")


def is_of_picture(segment: Segment) -> bool:
    """Return whether a segment is a part of a picture that ccb has drawn: no text of a host gets the mark of it."""
    text, style, _ = segment
    return text.startswith(HALF_BLOCK) and style is not None and "picture" in style.meta


class PictureShelf:
    """Draws pictures, and keeps the lines of those that were drawn last. `start` runs a coroutine."""

    def __init__(self, start: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._start = start
        self._kept: OrderedDict[_Key, list[Line]] = OrderedDict()  # the one drawn last is the last one
        self._waiting: OrderedDict[_Key, Callable[[], None]] = OrderedDict()
        self._works = False

    def lines(self, picture: PictureData, width: int, *, large: bool, redraw: Callable[[], None]) -> list[Line]:
        """Return the lines of a picture; none until it is decoded and `redraw` is called, or if it cannot be."""
        columns, rows = _LARGE_ROOM if large else _ROOM
        key = picture, (min(width - _INDENT, columns), rows)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if width > _INDENT:
            self._waiting[key] = redraw
            if not self._works:
                self._works = True
                self._start(self._work())
        return []

    async def _work(self) -> None:
        try:
            while self._waiting:
                key, redraw = self._waiting.popitem()  # the person looks at what was drawn last
                self._kept[key] = await asyncio.to_thread(_drawn, *key)
                cells = sum(len(lines) * _width(lines) for lines in self._kept.values())
                while len(self._kept) > 1 and (len(self._kept) > MAX_KEPT or cells > _MAX_KEPT_CELLS):
                    _, lines = self._kept.popitem(last=False)
                    cells -= len(lines) * _width(lines)
                if self._kept[key]:
                    redraw()
        finally:
            self._works = False


@dataclass(frozen=True)
class DrawnPicture:
    """A picture among the lines of a block; `large`: as large as the screen allows. `redraw` draws the block anew."""

    shelf: PictureShelf
    picture: PictureData
    large: bool
    redraw: Callable[[], None]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for line in self.shelf.lines(self.picture, options.max_width, large=self.large, redraw=self.redraw):
            yield from line
            yield Segment.line()


def _width(lines: list[Line]) -> int:
    return sum(len(segment.text) for segment in lines[0]) if lines else 0


def _drawn(picture: PictureData, room: tuple[int, int]) -> list[Line]:
    """Return the lines of a picture, as large as its pixels need or as there is room; none if it is bad. Blocks."""
    try:
        data = base64.b64decode(picture.data)
        whole = decoded(data, max(room[0] * _CELL[0], room[1] * _CELL[1]), MAX_DRAWN_PIXELS)
    except (ValueError, NotDecoded):
        return []
    columns, rows = whole.size[0] / _CELL[0], whole.size[1] / _CELL[1]
    share = min(1.0, room[0] / columns, room[1] / rows)
    return _half_blocks(_on_white(whole).resize((max(1, round(columns * share)), 2 * max(1, round(rows * share)))))


def _on_white(picture: Picture) -> Picture:
    if "A" not in picture.mode and picture.mode != "P":
        return picture.convert("RGB")
    from PIL import Image

    whole = picture.convert("RGBA")
    page = Image.new("RGB", whole.size, "white")
    page.paste(whole, (0, 0), whole)
    return page


def _half_blocks(picture: Picture) -> list[Line]:
    width, data = picture.size[0], picture.tobytes()
    pixels = list(zip(data[::3], data[1::3], data[2::3], strict=True))
    rows = [pixels[at : at + width] for at in range(0, len(pixels), width)]
    lines = []
    for two in zip(rows[::2], rows[1::2], strict=True):
        line = [Segment(" " * _INDENT)]
        for (upper, lower), cells in groupby(zip(*two, strict=True)):
            colours = Style.from_color(Color.from_rgb(*upper), Color.from_rgb(*lower))
            line.append(Segment(HALF_BLOCK * len(list(cells)), _DRAWN_BY_CCB + colours))
        lines.append(line)
    return lines
