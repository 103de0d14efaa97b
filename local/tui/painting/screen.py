"""The screen of the REPL. What a key has changed is painted first, alone and at once; the rest follows."""

from __future__ import annotations

from rich.cells import cell_len
from textual import events
from textual.geometry import Offset
from textual.screen import Screen
from textual.widgets import Input, Static, TextArea

from .compositor import LeanCompositor
from .key_priority import KeyPriority

CARET = "▏"
"""The caret in the lists and lines that take what is typed without an Input."""


class ReplScreen(Screen[object]):
    """Paints the widget with the focus before all others while a key waits."""

    def __init__(self, keys: KeyPriority, *, classes: str = "") -> None:
        super().__init__(id="_default", classes=classes)
        self._compositor = LeanCompositor()
        self._keys = keys

    @property
    def caret(self) -> Offset | None:
        """Where the caret of the widget with the focus stands on the screen, None without one. An input method shows
        its candidates there."""
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
        """Paint what a key has changed without the wait for the next frame. Textual's own handler follows."""
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
