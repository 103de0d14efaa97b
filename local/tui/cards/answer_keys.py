"""Which keys are answers to a card and which are text, by the times at which they were pressed.

All times are monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ...terminal.keymap import BURST_S

LOCK_S = 0.5
"""How long a card takes no key after it came into the place of another: the person may have meant that one."""

QUIET_S = 1.0  # without a key at the input before a card comes: then answers need no Tab
STAY_S = 2.0  # after an answer: a person who has typed nothing since goes on with the next card


class Enter(Enum):
    """What Enter means on a card."""

    GIVES = "gives the marked answer"
    WAITS = "gives it unless more text follows in the same burst"
    TEXT = "is a line break of typed text"
    TOO_SOON = "came in one burst with the key that led to the card"


class AnswerKeys:
    """The keys that one card gets.

    A character only marks an answer, because it may begin a message: `1. fix` is text, however slowly it is typed.
    """

    def __init__(self) -> None:
        self._last = 0.0
        self._marks = ""  # the characters since the person came, all of which mark answers
        self._early = ""  # such characters that came in one burst with the key that led here: they mark nothing
        self._alone = False  # the last key was such a character, pressed here and apart from the keys before it
        self._arrives = False  # nothing but that burst has come yet
        self.enter_waits = False  # for the end of its burst
        self.led_by = ("", "", False)  # what is marked when the person comes; see `QuestionCard.come`
        self._typing = False  # text has begun, which goes on until the person comes to the card again

    def begin(self, now: float, marks: str = "") -> None:
        """The card listens from now on. Keys from before were not meant for it, but for `marks`, which led here."""
        self._last = now
        self._marks, self._early = marks, ""
        self._alone = self._typing = self.enter_waits = False
        self._arrives = True

    def text_of(self, char: str, at: float, *, answers: str, space_marks: bool = False) -> str | None:
        """Take a character. Return the text that it belongs to, with the characters before it, "" if it may be a mark,
        and None if it is neither yet. `answers` are the characters that mark answers, and the space, which reads on, or
        also marks."""
        is_burst = self._in_burst(at) and char != " "  # a space bar that is held down reads on
        if is_burst and self._arrives and char in answers:
            self._early += char
            return None
        if self._typing or is_burst or char not in answers or (self._marks and char == " " and not space_marks):
            self._typing = True
            return self.release() + char
        self._marks += char if space_marks else char.strip()
        self._alone = char != " "
        return ""

    def enter(self, at: float) -> Enter:
        """Take Enter. A loaded terminal delivers a key and Enter in one read, and a paste more than these."""
        alone, is_burst = self._alone, self._in_burst(at)
        if self._typing:
            return Enter.TEXT
        if is_burst and alone:
            self.enter_waits = True
            return Enter.WAITS
        self.release()
        return Enter.TOO_SOON if is_burst else Enter.GIVES

    def is_burst(self, at: float) -> bool:
        """Take another key. Return whether it belongs to text: it came too fast, or after text."""
        return self._in_burst(at) or self._typing

    def waited(self, at: float) -> bool:
        """Another key follows an Enter that waits. Return whether that gives: it is text if the key is of its burst."""
        waits, self.enter_waits = self.enter_waits, False
        if waits and at - self._last < BURST_S:
            self._marks += "\n"
        return waits and at - self._last >= BURST_S

    def release(self) -> str:
        """Return the characters that looked like answers, which are no longer kept."""
        marks, self._marks, self._early = self._marks + self._early, "", ""
        return marks

    def _in_burst(self, at: float) -> bool:
        is_burst, self._last, self._alone = at - self._last < BURST_S, at, False
        if not is_burst:
            self._arrives, self._early = False, ""
        return is_burst


@dataclass
class CardTimes:
    """When the card came, when the one before went away, and when that one went with the focus after an answer."""

    shown: float = 0.0
    removed: float = -STAY_S
    answered: float = -STAY_S


class HeldKeys:
    """The keys that are pressed while a card cannot be gone to yet, or has just gone. They are for a card, and go to
    the input only if the person types text. `leads`: the person goes to the card as soon as that is possible.
    `wished`: Tab was pressed for that."""

    def __init__(self, marks: str, since: float) -> None:
        self.leads = self.wished = False
        self._marks = marks
        self._since = since
        self.chars = ""
        self.text = ""  # the characters since the last Enter, which may begin a text

    def takes(self, key: str, char: str | None, at: float) -> bool:
        """Take a key. Return False if it is text, or Enter long after the card has gone, which ends the holding. Enter
        gives nothing: the person may have meant the card before."""
        if char is not None and char in self._marks:
            self.chars += char
            self.text += char
            return True
        if key == "enter" and (self.chars or at - self._since < LOCK_S):
            self.text = ""
            return True
        return False
