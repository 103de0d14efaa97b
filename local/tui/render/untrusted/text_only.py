"""The last filter before the terminal: what any widget draws reaches it as characters and colours, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from ccb.tunnel.plain_text import CONTROLS

from .links import is_shown_address, without_hidden_link

_MAX_MARKS = 8
"""Characters without a width of their own in a row. More would be drawn over the lines around them."""

_LINE_CONTROLS = re.compile(f"[\t\n]|{CONTROLS.pattern}")


class TextOnly(LineFilter):
    """Takes control characters, hidden links, control segments and heaps of combining marks out of drawn lines.

    Widgets make remote text harmless themselves, and show what was in it. This filter is for the one that forgets to:
    Textual applies it to all lines of all widgets, so no text can drive the terminal. The cells of a line stay where
    they are."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(map(_is_harmless, segments)):
            return segments
        return [each if _is_harmless(each) else _harmless(each) for each in segments if not each.control]


def _is_harmless(segment: Segment) -> bool:
    text, style, control = segment
    if control or (style is not None and style.link and not is_shown_address(text, style.link)):
        return False
    if text.isascii() and text.isprintable():
        return True
    return not _LINE_CONTROLS.search(text) and not _has_heap(text)


def _harmless(segment: Segment) -> Segment:
    text, style, _ = without_hidden_link(segment)
    text = _LINE_CONTROLS.sub(lambda match: "�" * cell_len(match[0]), text)
    return Segment("".join(_without_heaps(text)), style)


def _has_heap(text: str) -> bool:
    return not text.isascii() and sum(1 for _ in _without_heaps(text)) < len(text)


def _without_heaps(text: str) -> Iterable[str]:
    """Yield the characters of a text without those that are too many on one cell."""
    marks = 0
    for char in text:
        marks = 0 if get_character_cell_size(char) else marks + 1
        if marks <= _MAX_MARKS:
            yield char
