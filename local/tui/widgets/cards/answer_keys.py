"""Tells the keys that mark an answer to a question from text that somebody types or pastes."""

from __future__ import annotations

BURST_S = 0.05
"""Keys that come faster one after the other are text: no person answers that fast, but a paste or a script types so."""

HOLD_S = 0.2
"""A chord counts when no other key has followed for so long. Esc and a word typed after it are no chord."""


class AnswerKeys:
    """The keys that one card gets. Times are monotonic seconds, those at which the keys were pressed.

    A character only marks an answer, because it may begin a message: `1. fix` is text, however slowly it is typed.
    """

    def __init__(self) -> None:
        self._last = 0.0
        self._marks = ""  # the characters since the person came, all of which mark answers
        self._typing = False  # text has begun, which goes on until the person comes to the card again

    def begin(self, now: float) -> None:
        """The card listens from now on. Keys from before were not meant for it."""
        self._last = now
        self._marks = ""
        self._typing = False

    def text_of(self, char: str, at: float, *, answers: str, space_marks: bool = False) -> str:
        """Take a character. Return the text that it belongs to, with the characters before it, or "" if it may be a
        mark. `answers` are the characters that mark answers, and the space, which reads on, or also marks."""
        is_burst, self._last = at - self._last < BURST_S, at
        is_burst = is_burst and char != " "  # a space bar that is held down reads on
        if self._typing or is_burst or char not in answers or (self._marks and char == " " and not space_marks):
            self._typing = True
            return self.release() + char
        self._marks += char if space_marks else char.strip()
        return ""

    def is_burst(self, at: float) -> bool:
        """Take a key that is not a character. Return whether it belongs to text: it came too fast to be meant for the
        card, or after text."""
        is_burst, self._last = at - self._last < BURST_S, at
        return is_burst or self._typing

    def release(self) -> str:
        """Return the characters that marked answers, which are no longer kept."""
        marks, self._marks = self._marks, ""
        return marks
