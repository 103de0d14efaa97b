"""The end of the session, or of the REPL: Ctrl+C pressed twice, /stop, a lost session, and the exit code."""

from __future__ import annotations

from enum import Enum

from ccb.tunnel.errors import CcbError

from ...command_line.error_text import code_of
from ...command_line.exit_codes import ExitCode

QUIT_WINDOW_S = 2.0
"""Seconds within which Ctrl+C has to be pressed again to quit."""


class SessionFate(Enum):
    """Whether the session goes on or how it ended, as far as this terminal knows."""

    OPEN = "open"
    STOPPING = "stopping"  # the person gave /stop
    STOPPED = "stopped"
    ENDED = "ended"  # it ended on the host, without a /stop from here
    LOST = "lost"


class Leaving:
    """Keeps the fate of the session, and whether the person is about to quit."""

    def __init__(self) -> None:
        self.fate = SessionFate.OPEN
        self.error: CcbError | None = None  # why the session was lost
        self._quit_pressed_at = -QUIT_WINDOW_S

    @property
    def stopped(self) -> bool:
        """Whether the person has ended the session on the host."""
        return self.fate is SessionFate.STOPPED

    @property
    def exit_code(self) -> int:
        """The exit code to return if the person leaves now."""
        return code_of(self.error) if self.error is not None else ExitCode.OK

    def stop_requested(self) -> None:
        """Note that the person ends the session on the host."""
        self.fate = SessionFate.STOPPING

    def session_ended(self, error: CcbError | None) -> SessionFate:
        """Note that no more events will come; `error` is set if the session was lost. Return the session's fate."""
        if error is not None:
            self.fate, self.error = SessionFate.LOST, error
        else:
            self.fate = SessionFate.STOPPED if self.fate is SessionFate.STOPPING else SessionFate.ENDED
        return self.fate

    def quit_pressed(self, now: float) -> bool:
        """Note that the person pressed a quit key, at `now` in monotonic seconds. Return whether it was the second time
        within QUIT_WINDOW_S."""
        before, self._quit_pressed_at = self._quit_pressed_at, now
        return now - before <= QUIT_WINDOW_S
