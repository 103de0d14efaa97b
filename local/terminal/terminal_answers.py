"""The background colour of the terminal (OSC 11): the question, the answer among what is typed, and what it means."""

from __future__ import annotations

import re

from ccb.tunnel.wire.dataclass import dataclass

BACKGROUND_ASKED = "\x1b]11;?\x1b\\"
NO_ANSWER = ("linux", "dumb")
"""Values of TERM that stand for terminals to which a question is only noise."""

_ANSWER = re.compile(r"\x1b\]11;(.{0,64})")
_COLOUR = re.compile(r"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})(?:/[0-9a-f]{1,4})?", re.IGNORECASE)


@dataclass(frozen=True)
class TerminalAnswer:
    """What the terminal has said of its background, without the sequence around it."""

    text: str


def answer_of(sequence: str) -> TerminalAnswer | None:
    """Return a sequence, without the end of a string, as an answer. Return None for any other sequence."""
    found = _ANSWER.fullmatch(sequence)
    return None if found is None else TerminalAnswer(found[1])


def is_light(answer: str) -> bool | None:
    """Return whether a colour such as `rgb:ffff/ffff/ffff` is a light one, or None if it is not a colour."""
    colour = _COLOUR.fullmatch(answer)
    if colour is None:
        return None
    shares = [int(part, 16) / (16.0 ** len(part) - 1) for part in colour.groups()]
    return sum(share * weight for share, weight in zip(shares, (0.299, 0.587, 0.114), strict=True)) > 0.5
