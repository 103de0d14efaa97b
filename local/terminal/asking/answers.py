"""Answers of the terminal to questions of ccb: taken out of what is typed, whenever they come."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from ccb.tunnel.wire.dataclass import dataclass


class AnswerKind(Enum):
    """What an answer is about. The value is its pattern."""

    BACKGROUND = r"\x1b\]11;([^\x07\x1b]{0,64})(?:\x07|\x1b\\)"
    KITTY_GRAPHICS = r"\x1b_G([^\x1b]{0,256})\x1b\\"
    NAME = r"\x1bP>\|([^\x1b]{0,128})\x1b\\"
    ATTRIBUTES = r"\x1b\[\?([0-9;]{0,64})c"
    CELL = r"\x1b\[6;([0-9]{1,5};[0-9]{1,5})t"


@dataclass(frozen=True)
class TerminalAnswer:
    """One answer: its kind, and its text without the sequence around it."""

    kind: AnswerKind
    text: str


_KINDS = tuple(AnswerKind)
_ANSWER = re.compile("|".join(kind.value for kind in _KINDS))
_BROKEN_MOUSE = re.compile(r"\x1b\[<[0-9]{0,4};(?:NaN;(?:NaN|[0-9]{0,6})|[0-9]{0,6};NaN)[Mm]")
"""What the terminal of VS Code sends for a mouse beside its cells. Textual would take it for typed text."""

_UNFINISHED = re.compile(
    r"""\x1b (?:
        \] (?: 1 (?: 1 (?: ; [^\x07\x1b]{0,64} \x1b? )? )? )?
      | _ (?: G [^\x1b]{0,256} \x1b? )?
      | P (?: > (?: \| [^\x1b]{0,128} \x1b? )? )?
      | \[ (?: \? [0-9;]{0,64} | 6 (?: ; (?: [0-9]{1,5} (?: ; [0-9]{0,5} )? )? )? | < [0-9;Na]{0,24} )?
    )? \Z""",
    re.VERBOSE,
)
_STARTS = ("\x1b]11;", "\x1b_G", "\x1bP>|", "\x1b[?")
"""With these no key begins."""


class AnswerFilter:
    """Takes answers out of the text that a terminal sends. `expects`: one may come soon."""

    def __init__(self) -> None:
        self.expects = False
        self._kept = ""

    def feed(self, text: str) -> tuple[str, Sequence[TerminalAnswer]]:
        """Return the text without answers, and the answers in it. The beginning of an answer is kept back until the
        rest comes."""
        text = self._kept + text
        answers = []
        for found in _ANSWER.finditer(text):
            at = (found.lastindex or 1) - 1
            answers.append(TerminalAnswer(_KINDS[at], found[at + 1]))
        text = _BROKEN_MOUSE.sub("", _ANSWER.sub("", text))
        unfinished = _UNFINISHED.search(text)
        cut = unfinished.start() if unfinished is not None else len(text)
        if text[cut:] == "\x1b" and not self.expects:
            cut = len(text)  # the Esc key should not wait
        self._kept = text[cut:]
        return text[:cut], answers

    def nothing_came(self) -> str:
        """Return what was kept back, if it may be keys: the rest of an answer would have come by now. What can only be
        an answer is kept."""
        if self._kept.startswith(_STARTS):
            return ""
        kept, self._kept = self._kept, ""
        return kept
