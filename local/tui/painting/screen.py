"""The screen of the REPL. What a key has changed is painted first, alone and at once; the rest follows."""

from __future__ import annotations

from textual import events
from textual.screen import Screen

from .compositor import LeanCompositor
from .key_priority import KeyPriority


class ReplScreen(Screen[object]):
    """Paints the widget with the focus before all others while a key waits."""

    def __init__(self, keys: KeyPriority, *, classes: str = "") -> None:
        super().__init__(id="_default", classes=classes)
        self._compositor = LeanCompositor()
        self._keys = keys

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
