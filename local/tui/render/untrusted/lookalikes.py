"""Words that look like other words: letters of two scripts in one word, and words made of letters that look Latin."""

from __future__ import annotations

import re
import unicodedata

from .escapes import is_hidden, is_right_to_left

_MAX_SEARCHED = 200_000  # characters
_MAX_QUOTED = 40
_WORD = re.compile(r"[^\W_]+")
_WRITTEN_TOGETHER = frozenset(("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"))
_LOOKS_LATIN = frozenset(
    "аеорсухіјѕһԁԛԝӏкгԍпмвнтүѵґАВЕКМНОРСТХУІЈЅҺԌԚԜӀ"  # Cyrillic
    "αινορυτκχγεωΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"  # Greek
    "սօոհյցզՍՕԼ"  # Armenian
    "ℓıɑɡɩȷ"
)


def warnings(text: str) -> list[str]:
    """Return a sentence about each word of a text that may not be what it looks like."""
    text = text[:_MAX_SEARCHED]
    if text.isascii():
        return []
    found: dict[str, None] = {}
    for match in _WORD.finditer(text):
        word = match[0]
        if not word.isascii():
            doubt = _doubt(word)
            if doubt:
                found[f"“{_quoted(word)}” {doubt}"] = None
    return list(found)


def doubtful(line: str) -> list[tuple[int, int]]:
    """Return where the words are that `warnings` warns about, as (start, end)."""
    if line.isascii():
        return []
    return [match.span() for match in _WORD.finditer(line) if not match[0].isascii() and _doubt(match[0])]


def hidden_count(text: str) -> tuple[int, int]:
    """Return the numbers of hidden characters and of right-to-left letters in a text; the latter are not among the
    former."""
    hidden = right_to_left = 0
    for match in re.finditer(r"[^\n\t -~]", text[:_MAX_SEARCHED]):
        if is_right_to_left(match[0]) and unicodedata.category(match[0])[0] == "L":
            right_to_left += 1
        elif is_hidden(match[0]):
            hidden += 1
    return hidden, right_to_left


def _doubt(word: str) -> str:
    """Return what is doubtful about a word, "" for nothing."""
    scripts = list(dict.fromkeys(_script(char) for char in word if char.isalpha()))
    if len(scripts) > 1 and not (set(scripts) - {"LATIN"} <= _WRITTEN_TOGETHER):
        return f"has letters of {' and '.join(map(str.capitalize, sorted(scripts)))}: {_numbers(word)}"
    if all(char in _LOOKS_LATIN for char in word if char.isalpha()) and any(map(str.isalpha, word)):
        return f"looks Latin and is {' and '.join(map(str.capitalize, scripts))}: {_numbers(word)}"
    if unicodedata.normalize("NFKC", word).isascii() and any(not char.isascii() and char.isalpha() for char in word):
        return f"is not written in plain letters: {_numbers(word)}"
    return ""


def _script(char: str) -> str:
    return "LATIN" if char < "\u0250" else unicodedata.name(char, "UNKNOWN").split(" ", 1)[0]


def _numbers(word: str) -> str:
    """Name the letters that are not ASCII by their numbers."""
    numbers = dict.fromkeys(f"U+{ord(char):04X}" for char in word if not char.isascii())
    return " ".join(list(numbers)[:4]) + (" …" if len(numbers) > 4 else "")


def _quoted(word: str) -> str:
    kept = "".join("?" if is_hidden(char) else char for char in word)
    return kept if len(kept) <= _MAX_QUOTED else kept[: _MAX_QUOTED - 1] + "…"
