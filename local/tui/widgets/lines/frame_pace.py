"""When a transcript is laid out again: at most once a frame, which lasts longer if laying out takes long."""

from __future__ import annotations

import time

_MIN_FRAME_S = 0.04
_MAX_FRAME_S = 0.5
_FRAME_PER_LAYOUT = 6  # a frame lasts this many times the CPU time of the previous layout and painting


class FramePace:
    """Measures layouts and painting, in CPU seconds of this thread."""

    def __init__(self) -> None:
        self.frame_s = _MIN_FRAME_S
        self.laid_out_at = 0.0  # monotonic
        self._painting_s = 0.0  # since the last layout

    @property
    def wait_s(self) -> float:
        """Seconds until the next layout may be; not above 0 if it may be now."""
        return self.laid_out_at + self.frame_s - time.monotonic()

    def resized(self) -> None:
        """The next layout must not wait."""
        self.frame_s = 0

    def painted(self, began: float) -> None:
        """Lines were painted since `began`, a time of this thread."""
        self._painting_s += time.thread_time() - began

    def laid_out(self, began: float) -> None:
        """A layout that began at this time of this thread is done."""
        self.laid_out_at = time.monotonic()
        took, self._painting_s = time.thread_time() - began + self._painting_s, 0.0
        self.frame_s = min(_MAX_FRAME_S, max(_MIN_FRAME_S, _FRAME_PER_LAYOUT * took))
