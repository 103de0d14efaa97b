"""Notices a model that tries a refused action again and again, in variants."""

from __future__ import annotations

_MAX_IN_A_ROW = 3
_MAX_IN_ALL = 20

DENIAL_FEEDBACK = (
    "Several of your tool calls in this session were refused. Do not try the same action in another form: "
    "say what you need it for, or go on without it."
)
"""What the model is told once each time a limit is reached."""


class DenialCounter:
    """Counts the denied tool calls of one agent over all its turns."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._in_all = 0

    def denied(self) -> bool:
        """Count a denial. Return True when a limit is reached and feedback is due; the count then starts anew."""
        self._in_a_row += 1
        self._in_all += 1
        if self._in_a_row < _MAX_IN_A_ROW and self._in_all < _MAX_IN_ALL:
            return False
        self._in_a_row = self._in_all = 0
        return True

    def permitted(self) -> None:
        """A call was permitted: the row of denials is broken."""
        self._in_a_row = 0
