"""Exact pictures, last filter.

The picture is injective: `unescaped` gives back the text from it, so two different texts never look the same. A
character that cannot be seen, that moves or hides others, or that looks like a part of this notation is shown by its
name or number, as `⟨ESC⟩` or `⟨U+202E⟩`. Right-to-left letters are among them, because some terminals reorder the
whole line around them; so are marks that are drawn over another character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from ccb.tunnel.plain_text import CONTROLS

_TAB = "⇥   "
_SPACE = "␣"  # a space at the end of a line, where it could not be seen
_LIKE_OUR_SYMBOLS = frozenset("⟨⟩〈〉❬❭❰❱⧼⧽‹›˂˃⇥↹⭾␣⎵␠")
_BLANK = frozenset("\u2800\U0001d159")  # symbols and letters without a visible form
_IGNORABLE = frozenset("\u115f\u1160\u3164\uffa0")  # letters that Unicode says are not to be shown
_HIDDEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Mn", "Me", "Mc"))
_RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))
_JOINING = (
    (0x1100, 0x11FF),  # Hangul letters that join to a syllable
    (0xA960, 0xA97F),
    (0xD7B0, 0xD7FF),
    (0x1F1E6, 0x1F1FF),  # letters that join to a flag
    (0x1F3FB, 0x1F3FF),  # skin tones, which join to the emoji before them
)

_NAMES = {"\0": "NUL", "\a": "BEL", "\b": "BS", "\v": "VT", "\f": "FF", "\r": "CR", "\x1b": "ESC", "\x7f": "DEL"}
_CHARACTERS = {"LF": "\n", **{name: char for char, name in _NAMES.items()}}

_NOT_PLAIN = re.compile(r"(?<! ) +(?=\n|\Z)|[^ -~\n]")
_STARTS_WITH_SPACES = re.compile(r"\A +")
_TOKEN = re.compile(r"⟨[^⟨⟩]*⟩|⇥ {0,3}|.")
_ESCAPED = re.compile(r"⟨([^⟨⟩]*)⟩|⇥ {0,3}|␣")
_SYMBOL = re.compile(r"⟨[^⟨⟩]*⟩|⇥|␣")


def is_hidden(char: str) -> bool:
    """Return whether a character cannot be shown as it is. Newlines and tabs are not hidden: they have a form."""
    if " " <= char <= "~" or char in "\n\t":
        return False
    return (
        char in _LIKE_OUR_SYMBOLS
        or char in _BLANK
        or char in _IGNORABLE
        or unicodedata.category(char) in _HIDDEN_CATEGORIES
        or unicodedata.bidirectional(char) in _RIGHT_TO_LEFT
        or any(first <= ord(char) <= last for first, last in _JOINING)
        or unicodedata.normalize("NFC", char) != char  # it has a twin that looks the same
    )


def is_right_to_left(char: str) -> bool:
    """Return whether a character belongs to a script that is written from right to left."""
    return unicodedata.bidirectional(char) in _RIGHT_TO_LEFT


def escaped(text: str) -> str:
    """Return the picture of a text. Newlines stay, so it has as many lines as the text."""
    return _NOT_PLAIN.sub(_picture, text)


def escaped_name(text: str) -> str:
    """Return the picture of a name or a path on one line. Newlines and the spaces at both ends are symbols."""
    return _STARTS_WITH_SPACES.sub(_picture, escaped(text)).replace("\n", "⟨LF⟩")


def unescaped(picture: str) -> str:
    """Return the text of a picture."""
    return _ESCAPED.sub(_meaning, picture)


def tokens(picture: str) -> list[str]:
    """Cut one line of a picture into the parts that must stay in one piece."""
    return _TOKEN.findall(picture)


def symbols(line: str) -> list[tuple[int, int]]:
    """Return where the symbols of the notation are in a line of a picture, as (start, end)."""
    return [match.span() for match in _SYMBOL.finditer(line)]


def _picture(match: re.Match[str]) -> str:
    char = match[0]
    if char[0] == " ":
        return _SPACE * len(char)
    if char == "\t":
        return _TAB
    if not is_hidden(char):
        return char
    return f"⟨{_NAMES.get(char) or f'U+{ord(char):04X}'}⟩"


def _meaning(match: re.Match[str]) -> str:
    whole, name = match[0], match[1]
    if whole == _SPACE:
        return " "
    if name is None:
        return "\t"
    return _CHARACTERS[name] if name in _CHARACTERS else chr(int(name.removeprefix("U+"), 16))


_ADDRESS = re.compile(r"https?://[!-~]{1,2000}")


def is_shown_address(text: str, target: str) -> bool:
    """Return whether `text` is all or a part of a plain web address `target`."""
    return bool(text) and text in target and _ADDRESS.fullmatch(target) is not None


def without_hidden_link(segment: Segment) -> Segment:
    """Return a segment without its hyperlink, unless that leads to the address that the segment shows."""
    text, style, _ = segment
    if style is None or not style.link or is_shown_address(text, style.link):
        return segment
    return Segment(text, style.update_link(None))


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
