"""Tells the keys that answer a question from text that somebody types or pastes."""

from __future__ import annotations

BURST_S = 0.05
"""Keys that come faster one after the other are text: no person answers that fast, but a paste or a script types so."""

HOLD_S = 0.2
"""An answer key counts when no other key has followed for so long. `1. fix` is text, `1` and a look at it an answer."""


class AnswerKeys:
    """The keys that one card gets. Times are monotonic seconds, those at which the keys were pressed."""

    def __init__(self) -> None:
        self._last = 0.0
        self._held = ""
        self._typing = False  # text has begun, which goes on until the person comes to the card again

    @property
    def held(self) -> str:
        """The answer key that waits, "" for none."""
        return self._held

    def begin(self, now: float) -> None:
        """The card listens from now on. Keys from before were not meant for it."""
        self._last = now
        self._held = ""
        self._typing = False

    def text_of(self, char: str, at: float, *, answers: str) -> str:
        """Take a character. Return it as text, with the one before it that waited as an answer, or "" if it may be an
        answer itself: then it is `held`. `answers` are the characters that answer."""
        is_burst, self._last = at - self._last < BURST_S, at
        held, self._held = self._held, ""
        is_burst = is_burst and char != " "  # a space bar that is held down reads on
        if held or is_burst or self._typing or char not in answers:
            self._typing = True
            return held + char
        self._held = char
        return ""

    def is_burst(self, at: float) -> bool:
        """Take a key that is not a character. Return whether it belongs to text: it came too fast to be meant for the
        card, or after text."""
        is_burst, self._last = at - self._last < BURST_S, at
        return is_burst or self._typing

    def release(self) -> str:
        """Return the answer key that waited, which waits no longer; "" for none."""
        held, self._held = self._held, ""
        return held
