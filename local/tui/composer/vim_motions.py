"""Where vim's motions and text objects lead in a text. All places are numbers of characters before them."""

from __future__ import annotations

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
    place, end = line_start(text, at), last_in_line(text, at)
    while place < end and text[place] in " \t":
        place += 1
    return place


def _kind(char: str, big: bool) -> int:
    if char.isspace():
        return 0
    return 1 if big or char.isalnum() or char == "_" else 2


def word_forward(text: str, at: int, *, big: bool = False) -> int:
    place, kind = at, _kind(text[at], big) if at < len(text) else 0
    while place < len(text) and kind and _kind(text[place], big) == kind:
        place += 1
    while place < len(text) and text[place].isspace():
        if text[place] == "\n" and place > at and text[place - 1] == "\n":
            break
        place += 1
    return place


def word_back(text: str, at: int, *, big: bool = False) -> int:
    place = at - 1
    while place > 0 and text[place].isspace():
        if text[place] == "\n" and text[place - 1] == "\n":
            return place
        place -= 1
    if place <= 0:
        return 0
    kind = _kind(text[place], big)
    while place > 0 and _kind(text[place - 1], big) == kind:
        place -= 1
    return place


def word_end(text: str, at: int, *, big: bool = False) -> int:
    """Return the last character of the word, or of the next one."""
    place = at + 1
    while place < len(text) and text[place].isspace():
        place += 1
    if place >= len(text):
        return max(0, len(text) - 1)
    kind = _kind(text[place], big)
    while place + 1 < len(text) and _kind(text[place + 1], big) == kind:
        place += 1
    return place


def vertical(text: str, at: int, lines: int, column: int) -> int | None:
    """Return the place so many lines below (above, if negative) in a column. None if there are no such lines."""
    start = line_start(text, at)
    for _ in range(abs(lines)):
        if lines > 0:
            end = line_end(text, start)
            if end == len(text):
                return None
            start = end + 1
        elif start == 0:
            return None
        else:
            start = line_start(text, start - 1)
    return min(start + column, last_in_line(text, start))


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
    pair = _PAIRS[text[place]]
    opening, closing = pair[0], pair[1]
    step = 1 if text[place] == opening else -1
    depth = 0
    while 0 <= place < len(text):
        depth += step * ((text[place] == opening) - (text[place] == closing))
        if depth == 0:
            return place
        place += step
    return None


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
    start, end = _alike(text, at, low, high, big)
    if not around:
        return start, end
    if text[at].isspace() and end < high:
        return start, _alike(text, end, end, high, big)[1]
    after = end
    while after < high and text[after] in " \t":
        after += 1
    if after == end:
        while start > low and text[start - 1] in " \t":
            start -= 1
    return start, after


def _alike(text: str, at: int, low: int, high: int, big: bool) -> tuple[int, int]:
    """Return where the characters of one kind begin and end that are around a place."""
    start, end, kind = at, at, _kind(text[at], big)
    while start > low and _kind(text[start - 1], big) == kind:
        start -= 1
    while end < high and _kind(text[end], big) == kind:
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
    opening, closing = pair[0], pair[1]
    start = _unmatched(text, at, -1, opening, closing)
    if start is None:
        return None
    end = _unmatched(text, start + 1, 1, closing, opening)
    if end is None:
        return None
    return (start, end + 1) if around else (start + 1, end)


def _unmatched(text: str, at: int, step: int, wanted: str, other: str) -> int | None:
    depth, place = 0, at
    if step < 0 and place < len(text) and text[place] == other:
        place -= 1  # on the bracket that closes the object
    while 0 <= place < len(text):
        if text[place] == wanted:
            if depth == 0:
                return place
            depth -= 1
        elif text[place] == other:
            depth += 1
        place += step
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
