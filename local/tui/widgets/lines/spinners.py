"""The spinners of running tools on the screen. A turn of them draws nothing but their own cells."""

from __future__ import annotations

from collections.abc import Iterator

from textual.geometry import Region
from textual.scroll_view import ScrollView
from textual.timer import Timer

from ...render.block_renderer import is_animated
from ..block_layout import BlockLayout
from .transcript_drawing import TranscriptDrawing

_MAX_ANIMATED = 60  # newest blocks that are searched for running tools
_TURN_S = 0.2


class Spinners:
    """Turns the spinners of a transcript while at least one is in view. `frame` counts the turns."""

    def __init__(self, transcript: ScrollView, layout: BlockLayout, drawing: TranscriptDrawing) -> None:
        self.frame = 0
        self._transcript = transcript
        self._layout = layout
        self._drawing = drawing
        self._timer: Timer | None = None

    def mounted(self) -> None:
        """The transcript runs, so that it may have timers."""
        self._timer = self._transcript.set_interval(_TURN_S, self._turn, pause=True)

    def resume(self) -> None:
        """Turn them from now on, if there are any."""
        if self._timer is not None and any(True for _ in self._rows()):
            self._timer.resume()

    def _turn(self) -> None:
        rows = list(self._rows())
        if rows:
            self.frame += 1
            self._transcript.refresh(*(Region(0, row, 1, 1) for row in rows))
        elif self._timer is not None:
            self._timer.pause()  # until one comes into view

    def _rows(self) -> Iterator[int]:
        """Yield the rows of the screen that begin with a spinner."""
        layout, top = self._layout, round(self._transcript.scroll_y)
        last = len(layout.blocks)
        for position in range(max(0, last - _MAX_ANIMATED), last):
            if is_animated(layout.blocks[position]) and layout.is_laid_out(position):
                row = layout.start(position) + self._drawing.head_line(layout.blocks[position]) - top
                if 0 <= row < self._transcript.size.height:
                    yield row
