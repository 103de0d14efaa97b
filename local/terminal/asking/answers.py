"""Answers of the terminal to questions of ccb."""

from __future__ import annotations

import re
from enum import Enum

from ccb.tunnel.wire.dataclass import dataclass


class AnswerKind(Enum):
    """What an answer is about. The value is its pattern, without the end of a string."""

    BACKGROUND = r"\x1b\]11;(.{0,64})"
    KITTY_GRAPHICS = r"\x1b_G(.{0,256})"
    NAME = r"\x1bP>\|(.{0,128})"
    ATTRIBUTES = r"\x1b\[\?([0-9;]{0,64})c"
    CELL = r"\x1b\[6;([0-9]{1,5};[0-9]{1,5})t"


@dataclass(frozen=True)
class TerminalAnswer:
    """One answer: its kind, and its text without the sequence around it."""

    kind: AnswerKind
    text: str


_KINDS = tuple(AnswerKind)
_ANSWER = re.compile("|".join(kind.value for kind in _KINDS))


def answer_of(sequence: str) -> TerminalAnswer | None:
    """Return a sequence as an answer of the terminal. Return None for any other sequence."""
    found = _ANSWER.fullmatch(sequence)
    if found is None:
        return None
    at = (found.lastindex or 1) - 1
    return TerminalAnswer(_KINDS[at], found[at + 1])
