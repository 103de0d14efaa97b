"""Images as cells of text: each cell says which part of which image it is.

These are the Unicode placeholders of kitty's graphics protocol. A widget draws an image as lines of them, so it is
scrolled, cut and covered as any text. `painter.py` makes of them what other terminals understand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from ccb.tunnel.wire.dataclass import dataclass

PLACEHOLDER = "\U0010eeee"
"""A private character, which is a part of an image."""

HALF_BLOCK = "▀"

_RANGES = (
    "305 30d-30e 310 312 33d-33f 346 34a-34c 350-352 357 35b 363-36f 483-487 592-595 597-599 59c-5a1 5a8-5a9 5ab-5ac "
    "5af 5c4 610-617 657-65b 65d-65e 6d6-6dc 6df-6e2 6e4 6e7-6e8 6eb-6ec 730 732-733 735-736 73a 73d 73f-741 743 745 "
    "747 749-74a 7eb-7f1 7f3 816-819 81b-823 825-827 829-82d 951 953-954 f82-f83 f86-f87 135d-135f 17dd 193a 1a17 "
    "1a75-1a7c 1b6b 1b6d-1b73 1cd0-1cd2 1cda-1cdb 1ce0 1dc0-1dc1 1dc3-1dc9 1dcb-1dcc 1dd1-1de6 1dfe 20d0-20d1 "
    "20d4-20d7 20db-20dc 20e1 20e7 20e9 20f0 2cef-2cf1 2de0-2dff a66f a67c-a67d a6f0-a6f1 a8e0-a8f1"
)


def _marks() -> str:
    bounds = (each.partition("-") for each in _RANGES.split())
    return "".join(chr(code) for first, _, last in bounds for code in range(int(first, 16), int(last or first, 16) + 1))


_MARKS = _marks()[:256]  # which of them stands on a placeholder is a number, as the protocol has it
_NUMBERS = {mark: number for number, mark in enumerate(_MARKS)}

MAX_CELLS = len(_MARKS)
"""Most rows and columns of an image, and one more than the highest number of an image."""

RUN = re.compile(f"(?:{PLACEHOLDER}[{_MARKS}]{{3}})+")
"""Cells of images in a row."""

_OURS = Style(meta={"image": True})
_CELL_CHARS = 4


@dataclass(frozen=True)
class Part:
    """A piece of one row of an image: `count` cells from the column `column` on."""

    number: int
    row: int
    column: int
    count: int


def image_row(number: int, row: int, columns: int) -> Segment:
    """Return a row of an image as cells."""
    text = "".join(f"{PLACEHOLDER}{_MARKS[row]}{_MARKS[column]}{_MARKS[number]}" for column in range(columns))
    return Segment(text, _OURS)


Rgb = tuple[int, int, int]


def block_row(upper: Sequence[Rgb], lower: Sequence[Rgb]) -> list[Segment]:
    """Return a row of half blocks: the colours of the upper and of the lower halves of its cells."""
    styles = (
        Style.from_color(Color.from_rgb(*above), Color.from_rgb(*below))
        for above, below in zip(upper, lower, strict=True)
    )
    return [Segment(HALF_BLOCK, _OURS + style) for style in styles]


def is_of_image(segment: Segment) -> bool:
    """Return whether a segment is a part of an image that ccb has drawn: no text of a host gets the mark of it."""
    text, style, _ = segment
    if style is None or not (text.startswith((PLACEHOLDER, HALF_BLOCK)) and style.meta.get("image")):
        return False
    return RUN.fullmatch(text) is not None or not text.strip(HALF_BLOCK)


def parts(run: str) -> Iterator[Part]:
    """Yield the parts of images in a match of RUN."""
    part: Part | None = None
    for at in range(0, len(run), _CELL_CHARS):
        row, column, number = (_NUMBERS[mark] for mark in run[at + 1 : at + _CELL_CHARS])
        if part is not None and (number, row, column) == (part.number, part.row, part.column + part.count):
            part = Part(number, row, part.column, part.count + 1)
            continue
        if part is not None:
            yield part
        part = Part(number, row, column, 1)
    if part is not None:
        yield part
