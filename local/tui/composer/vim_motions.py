"""Where vim's motions and text objects lead in a text. All places are numbers of characters before them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_PAIRS = {each: pair for pair in ("()", "[]", "{}", "<>") for each in pair} | {"b": "()", "B": "{}"}
_QUOTES = "\"'`"


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def last_in_line(text: str, at: int) -> int:
    """Return the last place of the line on which the cursor stands in normal mode."""
    return max(line_start(text, at), line_end(text, at) - 1)


def first_word(text: str, at: int) -> int:
    """Return the first character of the line that is no blank."""
    end = last_in_line(text, at)
    return end - len(text[line_start(text, at) : end].lstrip(" \t"))


def line_starts(text: str) -> list[int]:
    return [0, *(each.end() for each in re.finditer("\n", text))]


def _kind(char: str, big: bool) -> int:
    if char.isspace():
        return 0
    return 1 if big or char.isalnum() or char == "_" else 2


def word_forward(text: str, at: int, *, big: bool = False) -> int:
    start = _alike(text, at, big)[1] if at < len(text) and not text[at].isspace() else at
    end = _after_blanks(text, start)
    empty_line = text.find("\n\n", start, end)
    return end if empty_line < 0 else empty_line + 1


def word_back(text: str, at: int, *, big: bool = False) -> int:
    end = len(text[:at].rstrip())
    empty_line = text.rfind("\n\n", end, at)
    if empty_line >= 0:
        return empty_line + 1
    return _alike(text, end - 1, big)[0] if end else 0


def word_end(text: str, at: int, *, big: bool = False) -> int:
    """Return the last character of the word, or of the next one."""
    place = _after_blanks(text, at + 1)
    return _alike(text, place, big)[1] - 1 if place < len(text) else max(0, len(text) - 1)


def _after_blanks(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip())


def vertical(text: str, at: int, lines: int, column: int) -> int | None:
    """Return the place so many lines below (above, if negative) in a column. None if there are no such lines."""
    starts = line_starts(text)
    row = text.count("\n", 0, at) + lines
    return min(starts[row] + column, last_in_line(text, starts[row])) if 0 <= row < len(starts) else None


def found_in_line(text: str, at: int, char: str, count: int, kind: str) -> int | None:
    """Return where `kind` (f, F, t or T) leads to the character. None if it is not in the line that often."""
    forward = kind in "ft"
    place = at
    # A repeated t must not stay before the character at which it stands.
    for _ in range(count):
        if forward:
            place = text.find(char, place + 1, line_end(text, at))
        else:
            place = text.rfind(char, line_start(text, at), place)
        if place < 0:
            return None
    return place if kind in "fF" else place - 1 if forward else place + 1


def matching(text: str, at: int) -> int | None:
    """Return the bracket that matches the first one in the rest of the line, or None."""
    place = next((each for each in range(at, line_end(text, at)) if text[each] in "()[]{}"), None)
    if place is None:
        return None
    opening, closing = _PAIRS[text[place]]
    if text[place] == opening:
        return _unmatched(text, place + 1, 1, closing, opening)
    return _unmatched(text, place - 1, -1, opening, closing)


def text_object(text: str, at: int, around: bool, name: str) -> tuple[int, int] | None:
    """Return start and end of a text object such as `iw` or `a"`. None if the cursor is in none."""
    if name in "wW":
        return _word(text, at, around, big=name == "W")
    if name in _QUOTES:
        return _quoted(text, at, around, name)
    if name in _PAIRS:
        return _bracketed(text, at, around, _PAIRS[name])
    if name == "p":
        return _paragraph(text, at, around)
    return None


def _word(text: str, at: int, around: bool, *, big: bool) -> tuple[int, int] | None:
    low, high = line_start(text, at), line_end(text, at)
    if low == high:
        return None
    at = min(at, high - 1)
    start, end = _alike(text[low:high], at - low, big)
    start, end = start + low, end + low
    if not around:
        return start, end
    if text[at].isspace() and end < high:
        return start, _alike(text, end, big)[1]
    after = high - len(text[end:high].lstrip(" \t"))
    before = low + len(text[low:start].rstrip(" \t"))
    return (before, end) if after == end else (start, after)


def _alike(text: str, at: int, big: bool) -> tuple[int, int]:
    """Return where the characters of one kind begin and end that are around a place."""
    start, end, kind = at, at, _kind(text[at], big)
    while start > 0 and _kind(text[start - 1], big) == kind:
        start -= 1
    while end < len(text) and _kind(text[end], big) == kind:
        end += 1
    return start, end


def _quoted(text: str, at: int, around: bool, quote: str) -> tuple[int, int] | None:
    low, high = line_start(text, at), line_end(text, at)
    marks = [each for each in range(low, high) if text[each] == quote and (each == low or text[each - 1] != "\\")]
    for opening, closing in zip(marks[::2], marks[1::2], strict=False):
        if at <= closing:
            return (opening, closing + 1) if around else (opening + 1, closing)
    return None


def _bracketed(text: str, at: int, around: bool, pair: str) -> tuple[int, int] | None:
    opening, closing = pair
    closes = text[at : at + 1] == closing  # the cursor is on the end of the object
    start = _unmatched(text, min(at, len(text) - 1) - closes, -1, opening, closing)
    end = _unmatched(text, start + 1, 1, closing, opening) if start is not None else None
    if start is None or end is None:
        return None
    return (start, end + 1) if around else (start + 1, end)


def _unmatched(text: str, at: int, step: int, wanted: str, other: str) -> int | None:
    depth = 0
    for place in range(at, len(text) if step > 0 else -1, step):
        if text[place] == wanted and not depth:
            return place
        depth += (text[place] == other) - (text[place] == wanted)
    return None


def _paragraph(text: str, at: int, around: bool) -> tuple[int, int]:
    def blank(start: int) -> bool:
        return not text[start : line_end(text, start)].strip()

    start = line_start(text, at)
    kind = blank(start)
    while start > 0 and blank(line_start(text, start - 1)) == kind:
        start = line_start(text, start - 1)
    end = line_end(text, at)
    while end < len(text) and blank(end + 1) == kind:
        end = line_end(text, end + 1)
    while around and end < len(text) and blank(end + 1) != kind:
        end = line_end(text, end + 1)
    return start, min(end + 1, len(text))


SIMPLE: Mapping[str, Callable[[str, int], int]] = {
    "0": line_start,
    "home": line_start,
    "^": first_word,
    "w": word_forward,
    "W": lambda text, at: word_forward(text, at, big=True),
    "b": word_back,
    "B": lambda text, at: word_back(text, at, big=True),
    "e": word_end,
    "E": lambda text, at: word_end(text, at, big=True),
    "h": lambda text, at: max(line_start(text, at), at - 1),
    "left": lambda text, at: max(line_start(text, at), at - 1),
    "backspace": lambda text, at: max(0, at - 1),
    "l": lambda text, at: min(line_end(text, at), at + 1),
    "right": lambda text, at: min(line_end(text, at), at + 1),
    "space": lambda text, at: min(len(text), at + 1),
}
"""Motions of one step, which a count repeats."""

INCLUSIVE = frozenset(("e", "E", "$", "end", "f", "t", "%"))
"""Motions whose last character belongs to what an operator takes."""
