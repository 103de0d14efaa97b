"""Text of hosts and models: exact pictures of it, warnings about it, and the last filter in front of the terminal.

The picture is injective (`tests/support/repl/card_reader.py` reads it): two different texts never look the same. A
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

TAB = "⇥   "
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

NAMES = {"\0": "NUL", "\a": "BEL", "\b": "BS", "\v": "VT", "\f": "FF", "\r": "CR", "\x1b": "ESC", "\x7f": "DEL"}

_NOT_PLAIN = re.compile(r"(?<! ) +(?=\n|\Z)|[^ -~\n]")
_STARTS_WITH_SPACES = re.compile(r"\A +")
_TOKEN = re.compile(r"⟨[^⟨⟩]*⟩|⇥ {0,3}|.")
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


def escaped(text: str) -> str:
    """Return the picture of a text. Newlines stay, so it has as many lines as the text."""
    return _NOT_PLAIN.sub(_picture, text)


def escaped_name(text: str) -> str:
    """Return the picture of a name or a path on one line. Newlines and the spaces at both ends are symbols."""
    return _STARTS_WITH_SPACES.sub(_picture, escaped(text)).replace("\n", "⟨LF⟩")


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
        return TAB
    if not is_hidden(char):
        return char
    return f"⟨{NAMES.get(char) or f'U+{ord(char):04X}'}⟩"


_ADDRESS = re.compile(r"https?://[!-~]{1,2000}")


def is_shown_address(text: str, target: str) -> bool:
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
    words = (match[0] for match in _WORD.finditer(text))
    doubts = {word: _doubt(word) for word in words if not word.isascii()}
    return list(dict.fromkeys(f"“{_quoted(word)}” {doubt}" for word, doubt in doubts.items() if doubt))


def doubtful(line: str) -> list[tuple[int, int]]:
    """Return where the words are that `warnings` warns about, as (start, end)."""
    if line.isascii():
        return []
    return [match.span() for match in _WORD.finditer(line) if not match[0].isascii() and _doubt(match[0])]


def hidden_count(text: str) -> tuple[int, int]:
    """Return the numbers of hidden characters and of right-to-left letters in a text; the latter are not among the
    former."""
    chars = [match[0] for match in re.finditer(r"[^\n\t -~]", text[:_MAX_SEARCHED])]
    right_to_left = [
        unicodedata.bidirectional(char) in _RIGHT_TO_LEFT and unicodedata.category(char)[0] == "L" for char in chars
    ]
    return sum(map(is_hidden, chars)) - sum(right_to_left), sum(right_to_left)


def _doubt(word: str) -> str:
    """Return what is doubtful about a word, "" for nothing."""
    letters = [char for char in word if char.isalpha()]
    scripts = list(dict.fromkeys(map(_script, letters)))
    numbers = list(dict.fromkeys(f"U+{ord(char):04X}" for char in word if not char.isascii()))
    shown = " ".join(numbers[:4]) + (" …" if len(numbers) > 4 else "")
    if len(scripts) > 1 and not (set(scripts) - {"LATIN"} <= _WRITTEN_TOGETHER):
        return f"has letters of {' and '.join(map(str.capitalize, sorted(scripts)))}: {shown}"
    if letters and all(char in _LOOKS_LATIN for char in letters):
        return f"looks Latin and is {' and '.join(map(str.capitalize, scripts))}: {shown}"
    if unicodedata.normalize("NFKC", word).isascii() and any(not char.isascii() for char in letters):
        return f"is not written in plain letters: {shown}"
    return ""


def _script(char: str) -> str:
    return "LATIN" if char < "\u0250" else unicodedata.name(char, "UNKNOWN").split(" ", 1)[0]


def _quoted(word: str) -> str:
    kept = "".join("?" if is_hidden(char) else char for char in word)
    return kept if len(kept) <= _MAX_QUOTED else kept[: _MAX_QUOTED - 1] + "…"


_MAX_MARKS = 8  # characters without a width of their own in a row. More would be drawn over the lines around them
_LINE_CONTROLS = re.compile(f"[\t\n]|{CONTROLS.pattern}")


class TextOnly(LineFilter):
    """Takes control characters, hidden links, control segments and heaps of combining marks out of drawn lines.

    Widgets make remote text harmless themselves, and show what was in it. Textual applies this filter to all lines of
    all widgets, for the one that forgets to. The cells of a line stay where they are."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(map(_is_harmless, segments)):
            return segments
        return [each if _is_harmless(each) else _harmless(each) for each in segments if not each.control]


def _is_harmless(segment: Segment) -> bool:
    text, style, control = segment
    if control or (style is not None and style.link and not is_shown_address(text, style.link)):
        return False
    if text.isascii():
        return text.isprintable() or not _LINE_CONTROLS.search(text)
    return not _LINE_CONTROLS.search(text) and sum(1 for _ in _without_heaps(text)) == len(text)


def _harmless(segment: Segment) -> Segment:
    text, style, _ = without_hidden_link(segment)
    text = _LINE_CONTROLS.sub(lambda match: "�" * cell_len(match[0]), text)
    return Segment("".join(_without_heaps(text)), style)


def _without_heaps(text: str) -> Iterable[str]:
    marks = 0
    for char in text:
        marks = 0 if get_character_cell_size(char) else marks + 1
        if marks <= _MAX_MARKS:
            yield char
