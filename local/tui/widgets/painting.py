"""What is painted first: the keys of the person before what the agent writes.

This module uses private parts of Textual's screen and timers. It was written for Textual 8.2.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import Input, Static, TextArea

_HELD_S = 0.05  # seconds for which work stands still at most. A key that changes nothing on the screen is never shown
_FREE_S = 0.05  # seconds that work then has before the next key holds it
_SLICE_S = 0.004  # CPU seconds of work in a row; then the event loop turns
_LOOK_S = 0.005


class KeyPriority:
    """Whether a key has come that is not on the screen yet."""

    def __init__(self) -> None:
        self._came_at = -_HELD_S - _FREE_S

    def came(self) -> None:
        """A key has come. The thread that reads the terminal calls this, before the event loop knows of the key."""
        now = time.monotonic()
        if now - self._came_at > _HELD_S + _FREE_S:
            self._came_at = now

    def shown(self) -> None:
        self._came_at = -_HELD_S - _FREE_S

    @property
    def waits(self) -> bool:
        return time.monotonic() - self._came_at < _HELD_S


class WorkSlices:
    """Cuts work into slices of CPU time, between which the event loop turns and keys go first."""

    def __init__(self, keys: KeyPriority) -> None:
        self._keys = keys
        self._began = time.thread_time()

    async def next(self) -> None:
        """Call this after each small piece of work. It returns at once within a slice."""
        waits = self._keys.waits
        if waits or time.thread_time() - self._began > _SLICE_S:
            await asyncio.sleep(_LOOK_S if waits else 0)
            self._began = time.thread_time()


CARET = "▏"  # the caret in the lists and lines that take what is typed without an Input


class ReplScreen(Screen[object]):
    """Paints the widget with the focus before all others while a key waits."""

    def __init__(self, keys: KeyPriority, *, classes: str = "") -> None:
        super().__init__(id="_default", classes=classes)
        self._keys = keys

    @property
    def caret(self) -> Offset | None:
        """Where the caret stands on the screen, None without one. An input method shows its candidates there."""
        focused = self.focused
        if isinstance(focused, Input):
            x, y = focused.cursor_screen_offset
            return Offset(x - focused.cursor_at_end, y)  # Textual counts one too many there
        if isinstance(focused, TextArea):
            return focused.cursor_screen_offset
        for widget in (focused, *focused.query(Static)) if focused is not None else ():
            for y in range(widget.size.height):
                before, drawn, _ = widget.render_line(y).text.partition(CARET)
                if drawn:
                    x, top = widget.content_region.offset
                    return Offset(x + cell_len(before), top + y)
        return None

    async def _on_idle(self, event: events.Idle) -> None:
        if self._keys.waits and self.focused in self._dirty_widgets:
            self._on_timer_update()

    def _on_timer_update(self) -> None:
        focused = self.focused
        if focused is None or focused not in self._dirty_widgets or self.app._batch_count:
            super()._on_timer_update()
            return
        others = self._dirty_widgets - {focused}
        if self._keys.waits and others and not (self._layout_required or self._repaint_required):
            self._dirty_widgets = {focused}
            super()._on_timer_update()
            self._dirty_widgets |= others
            self.check_idle()  # paints them with the next frame
        else:
            super()._on_timer_update()
        self._keys.shown()


def marked(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    text = strip.text
    start = cell_len(text[: span[0]])
    end = strip.cell_length if span[1] == -1 else cell_len(text[: span[1]])
    if start >= end:
        return strip
    before, inside, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end)
    return Strip.join([before, Strip(Segment.apply_style(inside, post_style=style), inside.cell_length), after])


def call_once_after(pump: MessagePump, seconds: float, callback: Callable[[], object]) -> Timer:
    """Let a widget or an app call `callback` after some seconds, also if it is late for that.

    The timer of Textual's `set_timer` ends without a call if its time has passed before its task waits for it. That
    happens with times of microseconds, and with longer ones on a machine that is busy."""
    timer = pump.set_timer(seconds, callback)
    timer._skip = False  # its task has not begun
    return timer
