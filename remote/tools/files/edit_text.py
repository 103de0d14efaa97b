"""Exact replacement in the bytes of a file. The strings of the model adapt to the line endings of the file."""

from __future__ import annotations

import re

_STYLES = {'"': ("“", "”"), "'": ("‘", "’")}
_ANY_QUOTE = {
    quote: f"(?:{'|'.join((straight, *curly))})" for straight, curly in _STYLES.items() for quote in (straight, *curly)
}


class EditRefused(Exception):
    """The replacement cannot be made; the text says why and what would help."""


NOT_UTF8 = (
    "The file is not in UTF-8. Use a program in Bash that knows its encoding (`iconv`, or Python with `encoding=`)."
)


def is_utf8(data: bytes) -> bool:
    """Whether the data is valid UTF-8."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def replaced(data: bytes, old: str, new: str, replace_all: bool) -> tuple[bytes, int]:
    """Return the new content and the number of replacements. A line feed in `old` also matches a CRLF in the file, and
    `new` gets the line endings of the place it is written to, unless one of the strings contains a carriage return.
    Where `old` is not in the file, its quotes match straight and curly ones, and `new` gets those of the place.
    Raise EditRefused."""
    if old == new:
        raise EditRefused("No changes to make: old_string and new_string are exactly the same.")
    if not old:
        raise EditRefused("old_string is empty: that creates a new file, but the file already has content.")
    if not new.isascii() and not is_utf8(data):
        raise EditRefused(f"{NOT_UTF8} The new text would be written in UTF-8 among it.")
    plain = b"\r" not in data
    pattern = _pattern(old)
    count = data.count(old.encode()) if plain else len(pattern.findall(data))
    loose = count == 0 and is_utf8(data)
    if loose:
        pattern = _pattern(old, any_quotes=True)
        count = len(pattern.findall(data))
    if count == 0:
        raise EditRefused(f"String to replace not found in file.\nString: {_shown(old)}")
    if count > 1 and not replace_all:
        raise EditRefused(
            f"Found {count} matches of the string to replace, but replace_all is false. To replace all of them, set "
            f"replace_all to true; to replace one, give more of the text around it.\nString: {_shown(old)}"
        )
    if plain and not loose:
        return data.replace(old.encode(), new.encode()), count
    ending = _ending(data)
    adapts = "\r" not in old and "\r" not in new

    def put(match: re.Match[bytes]) -> bytes:
        text = (_with_quotes_of(match[0].decode(), new) if loose else new).encode()
        if not adapts:
            return text
        own = b"\r\n" if b"\r\n" in match[0] else b"\n" if b"\n" in match[0] else ending
        return text.replace(b"\n", own)

    return pattern.sub(put, data), count


def _pattern(old: str, *, any_quotes: bool = False) -> re.Pattern[bytes]:
    quotes = _ANY_QUOTE if any_quotes else {}
    text = "".join(quotes.get(char) or re.escape(char) for char in old).encode()
    if "\r" not in old:
        text = text.replace(b"\\\n", b"\r?\n")
    return re.compile(text)


def _with_quotes_of(found: str, new: str) -> str:
    """Return `new` with curly quotes where `found` has curly ones, and with straight quotes where it has straight ones.
    A quote opens at the start, behind a blank and behind an opening bracket."""
    for straight, (left, right) in _STYLES.items():
        if left in found or right in found:
            new = re.sub(rf"(?:^|(?<=[\s(\[{{<—–])){straight}", left, new).replace(straight, right)
        elif straight in found:
            new = new.replace(left, straight).replace(right, straight)
    return new


def _ending(data: bytes) -> bytes:
    crlf = data.count(b"\r\n")
    return b"\r\n" if crlf > data.count(b"\n") - crlf else b"\n"


def _shown(text: str) -> str:
    return text if len(text) <= 500 else f"{text[:500]}… ({len(text)} characters)"
