"""How many values a JSON text holds, and how deeply they are nested, without building them.

Three bytes of text (`[],`) become more than 60 bytes in memory. A single line is too short for that to matter; a frame
of many lines is measured before it is parsed. Strings are skipped at the speed of a search, so a frame that is one long
text costs next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .frames import FrameError

MAX_VALUES = 200_000
"""Values (objects, lists, texts, numbers and so on) in one frame of many lines."""

MAX_DEPTH = 200
"""Levels of objects and lists inside each other in one frame of many lines, and in what a laptop takes from a host.
Whoever shows or sends a value on goes down level by level, and the stack of Python ends at about a thousand."""

_BRACKET = re.compile(r"[\[{\]}]")


def count_values(text: str) -> int:
    """Return how many values a JSON text holds. Raise FrameError if they are more than MAX_VALUES, or nested deeper
    than MAX_DEPTH. Text that is not JSON has any number: the parser refuses it."""
    if "\\" in text:  # without escapes, every quote begins or ends a string
        text = text.replace("\\\\", "").replace('\\"', "")
    values = opened = 0
    pieces = []
    for piece in _outside_strings(text):
        brackets = piece.count("[") + piece.count("{")
        values += brackets + piece.count(",")
        pieces.append(piece)
        if values > MAX_VALUES or len(pieces) > 2 * MAX_VALUES:  # a value and its name are two strings at most
            raise FrameError(f"a frame has more than {MAX_VALUES} values")
        opened += brackets
    if opened > MAX_DEPTH and _depth(pieces) > MAX_DEPTH:
        raise FrameError(f"a frame is nested more than {MAX_DEPTH} levels deep")
    return values


def is_too_deep(value: object, most: int = MAX_DEPTH) -> bool:
    """Return whether a value that was parsed is nested in more than `most` levels."""
    level = [value]
    for _ in range(most + 1):
        inner: list[object] = []
        for each in level:
            if type(each) is dict:
                inner += each.values()
            elif type(each) is list:
                inner += each
        if not inner:
            return False
        level = [each for each in inner if type(each) is dict or type(each) is list]
    return bool(level)


def _outside_strings(text: str) -> Iterator[str]:
    """Yield the pieces of a JSON text between its strings."""
    end = -1
    while True:
        start = text.find('"', end + 1)
        if start < 0:
            yield text[end + 1 :]
            return
        yield text[end + 1 : start]
        end = text.find('"', start + 1)
        if end < 0:
            return


def _depth(pieces: list[str]) -> int:
    depth = deepest = 0
    for piece in pieces:
        for bracket in _BRACKET.findall(piece):
            depth += 1 if bracket in "[{" else -1
            deepest = max(deepest, depth)
    return deepest
