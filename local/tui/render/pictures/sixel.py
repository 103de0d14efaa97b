"""Writes images as sixels: six rows of pixels in one line of characters, a colour after the other."""

from __future__ import annotations

import re

from .decoding import Picture

_BAND = 6  # rows of pixels
_OFFSET = 63  # the character of six pixels that are not set
_COLOURS = 256
_LONG = re.compile(r"(.)\1{3,}")


def as_sixels(picture: Picture) -> str:
    """Return an image in RGB as a sixel sequence. Blocks."""
    width, height = picture.size
    indexed = picture.quantize(_COLOURS)
    palette = indexed.getpalette() or []
    pixels = indexed.tobytes()
    used = sorted(set(pixels))
    colours = "".join(
        f"#{index};2;{';'.join(str(round(value * 100 / 255)) for value in palette[3 * index : 3 * index + 3])}"
        for index in used
    )
    bands = []
    for top in range(0, height, _BAND):
        rows = [pixels[row * width : (row + 1) * width] for row in range(top, min(top + _BAND, height))]
        bands.append("$".join(_coloured(rows, index, width) for index in sorted(set(b"".join(rows)))))
    return f'\x1bP0;1;0q"1;1;{width};{height}{colours}{"-".join(bands)}\x1b\\'


def _coloured(rows: list[bytes], index: int, width: int) -> str:
    """Return the pixels of one colour in a band."""
    set_pixels = [0] * width
    for bit, row in enumerate(rows):
        at = row.find(index)
        while at >= 0:
            set_pixels[at] |= 1 << bit
            at = row.find(index, at + 1)
    text = "".join(chr(_OFFSET + value) for value in set_pixels).rstrip(chr(_OFFSET))
    return f"#{index}" + _LONG.sub(lambda run: f"!{len(run[0])}{run[1]}", text)
