"""Decodes images with Pillow, which the extra `ccb[images]` brings.

An image may come from a host, so only the formats that the Messages API takes are decoded, and only up to a number of
pixels that its head must announce before anything is unpacked. All of it blocks: call it in a thread.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
from collections.abc import Sequence
from typing import Protocol, cast

from ccb.tunnel.wire.content.images import image_size, image_type

MAX_DECODED_PIXELS = 64_000_000
"""Most pixels of an image that is decoded: they take a quarter of a gigabyte."""

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


class NotDecoded(Exception):
    """An image cannot be decoded; the text says why."""


class Picture(Protocol):
    """What is used of an image of Pillow."""

    mode: str
    size: tuple[int, int]

    def convert(self, mode: str) -> Picture: ...

    def crop(self, box: tuple[int, int, int, int]) -> Picture: ...

    def draft(self, mode: str, size: tuple[int, int]) -> object: ...

    def getpalette(self) -> list[int] | None: ...

    def load(self) -> object: ...

    def paste(self, picture: Picture, box: tuple[int, int], mask: Picture) -> None: ...

    def quantize(self, colors: int) -> Picture: ...

    def resize(self, size: tuple[int, int]) -> Picture: ...

    def save(self, file: io.BytesIO, format: str, *, quality: int = ...) -> None: ...

    def thumbnail(self, size: tuple[int, int]) -> None: ...

    def tobytes(self) -> bytes: ...


class _ImageModule(Protocol):
    def open(self, file: io.BytesIO, *, formats: Sequence[str]) -> Picture: ...

    def new(self, mode: str, size: tuple[int, int], colour: str) -> Picture: ...


class _ImageOps(Protocol):
    def exif_transpose(self, picture: Picture) -> Picture: ...


def can_decode() -> bool:
    """Return whether Pillow is installed. It is not loaded."""
    return importlib.util.find_spec("PIL") is not None


def decoded(data: bytes, most_pixels: int) -> Picture:
    """Return an image as large as it is, or scaled to at most `most_pixels` each way, upright. Raise NotDecoded."""
    size = image_size(data) if image_type(data[:16]) is not None else None
    if size is None or not all(size):
        raise NotDecoded("it is no image that ccb knows")
    if size[0] * size[1] > MAX_DECODED_PIXELS:
        raise NotDecoded(f"{size[0]:,} x {size[1]:,} pixels are too many to decode")
    if not can_decode():
        raise NotDecoded("Pillow is not installed: pip install 'ccb[images]'")
    images = cast("_ImageModule", importlib.import_module("PIL.Image"))
    upright = cast("_ImageOps", importlib.import_module("PIL.ImageOps"))
    try:
        picture = images.open(io.BytesIO(data), formats=_FORMATS)
        if picture.size[0] * picture.size[1] > MAX_DECODED_PIXELS:
            raise NotDecoded("it has more pixels than its head says")
        picture.draft("RGB", (most_pixels, most_pixels))
        picture.thumbnail((most_pixels, most_pixels))
        return upright.exif_transpose(picture)
    except NotDecoded:
        raise
    except Exception as error:  # decoders of damaged images raise nearly anything
        raise NotDecoded("it is damaged, or of a kind that Pillow does not know") from error


def on_white(picture: Picture) -> Picture:
    """Return an image in RGB; what can be seen through is white, as on a page. Blocks."""
    if "A" not in picture.mode and picture.mode != "P":
        return picture.convert("RGB")
    whole = picture.convert("RGBA")
    images = cast("_ImageModule", importlib.import_module("PIL.Image"))
    page = images.new("RGB", whole.size, "white")
    page.paste(whole, (0, 0), whole)
    return page
