"""Timers that call once, whatever the machine does meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from textual.message_pump import MessagePump
from textual.timer import Timer


def call_once_after(pump: MessagePump, seconds: float, callback: Callable[[], None]) -> Timer:
    """Let a widget or an app call `callback` after some seconds, also if it is late for that.

    The timer of Textual's `set_timer` ends without a call if its time has passed before its task waits for it. That
    happens with times of microseconds, and with longer ones on a machine that is busy."""
    timer = pump.set_timer(seconds, callback)
    timer._skip = False  # its task has not begun
    return timer
