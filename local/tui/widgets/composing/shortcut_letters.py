"""Letters that do something at once in an empty composer, unless they turn out to begin a word."""

from __future__ import annotations

_TYPING_S = 0.4  # the longest time between two keys of a person who is typing


class ShortcutLetters:
    """Which letters are shortcuts now, and the newest one that was pressed. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.active: frozenset[str] = frozenset()
        self._letter = ""  # the last key, if it was a shortcut that may be the first letter of a word
        self._pressed_at = 0.0

    def pressed(self, letter: str, at: float, *, may_begin_word: bool) -> None:
        """Note that the person pressed a shortcut."""
        self._letter, self._pressed_at = letter if may_begin_word else "", at

    def begun_word(self, at: float, *, printable: bool) -> str:
        """Take the next key. Return the shortcut before it if that was the first letter of a word, else ""."""
        letter, self._letter = self._letter, ""
        return letter if printable and at - self._pressed_at < _TYPING_S else ""
