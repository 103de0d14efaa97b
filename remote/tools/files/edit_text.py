"""Exact replacement in the text of a file, whose encoding stays. The strings of the model adapt to its line endings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ccb.tunnel.wire.dataclass import dataclass

from ...system.text_encoding import Text, text_of
from .patch import line_changes

_STYLES = {'"': ("“", "”"), "'": ("‘", "’")}
_ANY_QUOTE = {
    quote: f"(?:{'|'.join((straight, *curly))})" for straight, curly in _STYLES.items() for quote in (straight, *curly)
}


class EditRefused(Exception):
    """The replacement cannot be made; the text says why and what would help."""


NO_TEXT = "The file is binary, or its text is damaged: only a program in Bash can change it."
NOT_UTF8 = (
    "The file is not in UTF-8. Use a program in Bash that knows its encoding (`iconv`, or Python with `encoding=`)."
)
_IN_A_CHARACTER = (
    f"{NOT_UTF8} old_string stands right behind a byte that is not ASCII, and may be a part of a character there."
)


@dataclass(frozen=True)
class Replacement:
    """A text in which matches of `old` were replaced: `spans` are their places in the text before."""

    text: str
    spans: list[tuple[int, int]]


def editable(data: bytes) -> Text:
    """Return the text of a file. Raise EditRefused for a binary one."""
    text = text_of(data)
    if text is None:
        raise EditRefused(NO_TEXT)
    return text


def replace_in(within: Text, old: str, new: str, replace_all: bool) -> Replacement:
    """Replace a text. A line feed in `old` also matches a CRLF in the file, and `new` gets the line endings of the
    place it is written to, unless one of the strings contains a carriage return; so does a carriage return in a file
    whose lines end in them alone. Where `old` is not in the file, its
    quotes match straight and curly ones, and `new` gets those of the place. Raise EditRefused."""
    text = within.text
    if old == new:
        raise EditRefused("No changes to make: old_string and new_string are exactly the same.")
    if not old:
        raise EditRefused("old_string is empty: that creates a new file, but the file already has content.")
    if not within.codec and not (old + new).isascii():
        raise EditRefused(f"{NOT_UTF8} Edit changes only ASCII text in it.")
    if ends_in_returns(text) and "\r" not in old + new:
        old, new = old.replace("\n", "\r"), new.replace("\n", "\r")
    found = list(_pattern(old).finditer(text))
    loose = not found
    if loose:
        found = list(_pattern(old, any_quotes=True).finditer(text))
    if not found:
        raise EditRefused(f"String to replace not found in file.\nString: {_shown(old)}")
    if len(found) > 1 and not replace_all:
        raise EditRefused(
            f"Found {len(found)} matches of the string to replace, but replace_all is false. To replace all of them, "
            "set replace_all to true; to replace one, give more of the text around it.\n"
            f"String: {_shown(old)}"
        )
    if not within.codec and any(not text[each.start() - 1 : each.start()].isascii() for each in found):
        raise EditRefused(_IN_A_CHARACTER)
    adapts = "\r" in text and "\r" not in old and "\r" not in new
    pieces, at = [], 0
    for each in found:
        put = _with_quotes_of(each[0], new) if loose else new
        put = with_endings_of(each[0], put, _ending_at(text, each.end())) if adapts else put
        pieces += [text[at : each.start()], put]
        at = each.end()
    return Replacement("".join([*pieces, text[at:]]), [each.span() for each in found])


def ends_in_returns(text: str) -> bool:
    """Return whether the lines of a text end in carriage returns alone."""
    return "\n" not in text and "\r" in text.rstrip("\r")


def _pattern(old: str, *, any_quotes: bool = False) -> re.Pattern[str]:
    quotes = _ANY_QUOTE if any_quotes else {}
    text = "".join(quotes.get(char) or re.escape(char) for char in old)
    return re.compile(text if "\r" in old else text.replace("\\\n", "\r*\n"))


def _with_quotes_of(found: str, new: str) -> str:
    """Return `new` with curly quotes where `found` has curly ones, and with straight quotes where it has straight ones.
    A quote opens at the start, behind a blank and behind an opening bracket."""
    for straight, (left, right) in _STYLES.items():
        if left in found or right in found:
            new = re.sub(rf"(?:^|(?<=[\s(\[{{<—–])){straight}", left, new).replace(straight, right)
        elif straight in found:
            new = new.replace(left, straight).replace(right, straight)
    return new


def with_endings_of(old: str, new: str, ending: str) -> str:
    """Return `new`, whose lines end in line feeds, with the line endings that `old` has. A line that is not in `old`
    gets that of the line which it replaces, or of the line before it, or else `ending`."""
    before, after = old.split("\n"), new.split("\n")
    bare = [line.rstrip("\r") for line in before]
    tails = [line[len(text) :] for line, text in zip(before, bare)]
    tail = ending[:-1]
    lines: list[str] = []
    for line, twin in zip(after, _twins(bare, after)):
        if len(lines) == len(after) - 1:  # no line feed follows
            tail = tails[-1] if twin == len(before) - 1 else ""
        elif 0 <= twin < len(before) - 1:
            tail = tails[twin]
        lines.append(line + tail)
    return "\n".join(lines)


def _twins(before: list[str], after: list[str]) -> Iterator[int]:
    """Yield for each line of `after` which line of `before` it is or replaces, -1 for none."""
    done = 0
    for a, b, c, d in [*line_changes(before, after), (len(before), len(before), len(after), len(after))]:
        yield from range(a - (c - done), a)
        yield from (a + n if a + n < b else -1 for n in range(d - c))
        done = d


def _ending_at(text: str, at: int) -> str:
    """Return the line ending that follows a place of a text, or else that before it."""
    end = text.find("\n", at)
    if end < 0:
        end = text.rfind("\n", 0, at)
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def _shown(text: str) -> str:
    return text if len(text) <= 500 else f"{text[:500]}… ({len(text)} characters)"
