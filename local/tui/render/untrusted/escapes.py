"""Text of the host or the model as an exact picture: every character can be seen, and none is left out.

The picture is injective: `unescaped` gives back the text from it, so two different texts never look the same. A
character that cannot be seen, that moves or hides others, or that looks like a part of this notation is shown by its
name or number, as `⟨ESC⟩` or `⟨U+202E⟩`. Right-to-left letters are among them, because some terminals reorder the
whole line around them; so are marks that are drawn over another character.
"""

from __future__ import annotations

import re
import unicodedata

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
