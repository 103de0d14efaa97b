"""Make text from the remote safe to show: remove escape sequences, control characters and direction overrides."""

from __future__ import annotations

import json
import re
import shlex

_SEQUENCES = re.compile(
    r"""
    \x1b \[ [0-?]* [ -/]* [@-~]             # CSI
  | \x1b [\]PX^_] .*? (?: \x07 | \x1b \\ | \x9c | \Z ) # OSC, DCS, SOS, PM, APC with their payload
  | \x1b [ -/]* [0-~]?                      # every other escape
  | \x9b [0-?]* [ -/]* [@-~]                # C1 CSI
  | [\x90\x98\x9d\x9e\x9f] .*? (?: \x07 | \x1b \\ | \x9c | \Z ) # the same as one C1 character
    """,
    re.VERBOSE | re.DOTALL,
)
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff\ud800-\udfff\U0010eeee]"
)
"""Characters that drive a terminal or reorder its text, and a part of an image. Newline and tab are none."""
_MARKS = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_BLANKS = {ord("\n"): " ", ord("\t"): " "}
_HEAPS = re.compile(f"({_MARKS}{{8}}){_MARKS}+")  # more than any script puts over one character


def _harmless(match: re.Match[str]) -> str:
    char = match.group()
    if char < " ":
        return chr(0x2400 + ord(char))
    return "␡" if char == "\x7f" else "�"


def neutralise(text: str) -> str:
    """Return `text` without terminal sequences and with `\\n` for `\\r\\n`. Other control characters, direction
    overrides, lone surrogates and heaps of marks become symbols."""
    plain = CONTROLS.sub(_harmless, _SEQUENCES.sub("", text).replace("\r\n", "\n"))
    return plain if plain.isascii() else _HEAPS.sub("\\1�", plain)


def as_line(text: str) -> str:
    """Return a text as one line of ccb, neutralised: newlines and tabs become blanks, what is aligned stays so."""
    return neutralise(text).translate(_BLANKS)


def one_line(text: str) -> str:
    """Return a name from the remote, neutralised and on one line without blanks at its ends."""
    return " ".join(as_line(text).split())


class HostText:
    """Text that the host chose. It is no `str`: formatted it is one line, neutralised, cut and in quotation marks."""

    __slots__ = ("raw",)

    def __init__(self, raw: str) -> None:
        self.raw = raw

    @property
    def cell(self) -> str:
        """The text on one line without quotation marks, for a place that holds nothing else, such as a column."""
        return self.line(MAX_SHOWN)

    @property
    def path(self) -> str:
        """The text as a path: in quotation marks only if it has blanks, which could make words of it."""
        return self.cell if self.cell and not any(map(str.isspace, self.cell)) else str(self)

    def line(self, most: int) -> str:
        """Return at most about `most` characters of the text as a cell."""
        read = self.raw[: 4 * most]
        text = one_line(read)
        return text if len(text) <= most and read == self.raw else f"{text[:most]}…"

    def __str__(self) -> str:
        return f"“{self.cell.translate(_NO_QUOTES)}”"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    __repr__ = __str__

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostText) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)


def make_directory(path: str) -> str:
    """Return what a person can do about a missing directory, "" if its name cannot be shown as it is."""
    return f"Create it: mkdir -p {shlex.quote(path)}" if path and HostText(path).cell == path else ""


MAX_SHOWN = 480  # characters that are shown of one text of the host
_NO_QUOTES = str.maketrans("“”", "''")


def escaped_json(text: str) -> str:
    """Return a JSON text with the same value in which all that `neutralise` would replace are written as escapes."""
    return CONTROLS.sub(lambda match: json.dumps(match.group())[1:-1], text)


def age_text(seconds: float) -> str:
    """Return an age as `12s`, `5m`, `3h` or `2d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(max(0, seconds))}s"
