"""Chords of Alt and a letter that do much: they count only if they were pressed alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.timer import Timer

from ..widgets.cards.answer_keys import BURST_S, HOLD_S
from ..widgets.one_shot import call_once_after


class LoneChord:
    """A chord that counts if no other key came just before it and none follows for a moment. A terminal sends Alt+T as
    Esc and t: Esc and a word that is typed or pasted after it look the same. Times are monotonic seconds."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._last = 0.0
        self._is_burst = False
        self._held: Timer | None = None

    def key_came(self, at: float) -> None:
        """Note a key or a paste, the chord itself too."""
        self._is_burst, self._last = at - self._last < BURST_S, at
        if self._held is not None:
            self._held.stop()
            self._held = None

    def pressed(self, action: Callable[[], None]) -> None:
        """Call `action` once it is clear that the last key was the chord."""
        if not self._is_burst:
            self._held = call_once_after(self._app, HOLD_S, action)
