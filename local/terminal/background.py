"""Ask the terminal for its background colour (OSC 11), and keep the answer, whenever it comes, out of what is typed."""

from __future__ import annotations

import re

QUESTION = "\x1b]11;?\x1b\\"
NO_ANSWER = ("linux", "dumb")
"""Values of TERM that stand for terminals to which the question is only noise."""

_ANSWER = re.compile(r"\x1b\]11;([^\x07\x1b]{0,64})(?:\x07|\x1b\\)")
_START = "\x1b]11;"
_UNFINISHED = re.compile(r"\x1b(?:\]1{0,2}|\]11;[^\x07\x1b]{0,64}\x1b?)?\Z")
_COLOUR = re.compile(r"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})(?:/[0-9a-f]{1,4})?", re.IGNORECASE)


class AnswerFilter:
    """Takes answers out of the text that a terminal sends. `expects`: one may come soon."""

    def __init__(self) -> None:
        self.expects = False
        self._kept = ""

    def feed(self, text: str) -> tuple[str, str]:
        """Return the text without answers, and the newest answer in it, if any. The beginning of an answer is kept back
        until the rest comes."""
        text = self._kept + text
        answer = ""
        for found in _ANSWER.finditer(text):
            answer, self.expects = found[1], False
        text = _ANSWER.sub("", text)
        unfinished = _UNFINISHED.search(text)
        cut = unfinished.start() if unfinished is not None else len(text)
        if text[cut:] == "\x1b" and not self.expects:
            cut = len(text)  # the Esc key should not wait
        self._kept = text[cut:]
        return text[:cut], answer

    def nothing_came(self) -> str:
        """Return what was kept back, if it may be keys: the rest of an answer would have come by now. What can only be
        an answer is kept."""
        if self._kept.startswith(_START):
            return ""
        kept, self._kept = self._kept, ""
        return kept


def is_light(answer: str) -> bool | None:
    """Return whether a colour such as `rgb:ffff/ffff/ffff` is a light one, or None if it is not a colour."""
    colour = _COLOUR.fullmatch(answer)
    if colour is None:
        return None
    shares = [int(part, 16) / (16.0 ** len(part) - 1) for part in colour.groups()]
    return sum(share * weight for share, weight in zip(shares, (0.299, 0.587, 0.114), strict=True)) > 0.5
