"""How far a copy is, and the line that says so."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from ccb.tunnel.plain_text import one_line

_SPAN_S = 5.0
_BAR = 20
_MAX_TEXT = 1_000  # characters
_UNITS = ("B", "KB", "MB", "GB", "TB")


@dataclass
class CopyProgress:
    """How far a copy is. A thread writes it; whoever shows it reads it when they like.

    `files` and `size` are those of the source, 0 until it is known. `copied` counts files and `done` bytes that are
    there, `skipped` holds paths with the reason why they were left out, `waiting` says why nothing moves.
    """

    files: int = 0
    size: int = 0
    done: int = 0
    copied: int = 0
    folder: bool = False
    waiting: str = ""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def restart(self) -> None:
        """Count from the start: the halves agree anew about what is there."""
        self.done = self.copied = 0
        self.skipped.clear()
        self._seen.clear()

    def moved(self, size: int) -> None:
        """Add bytes that need not be copied any more."""
        self.done += size

    def one_is_there(self) -> None:
        """Count a file that is there as a whole."""
        self.copied += 1

    def begun(self, files: int, size: int) -> None:
        """Note what the source holds."""
        self.files, self.size, self.waiting = files, size, ""

    def left_out(self, path: str, why: str) -> None:
        """Note something that is not copied. Only so many are kept."""
        if len(self.skipped) < 1000:
            self.skipped.append((path[:_MAX_TEXT], why[:_MAX_TEXT]))

    def rate(self, now: float | None = None) -> float:
        """Return bytes a second over the last seconds, as far as this was asked for meanwhile."""
        now = time.monotonic() if now is None else now
        self._seen.append((now, self.done))
        while len(self._seen) > 2 and self._seen[0][0] < now - _SPAN_S:
            self._seen.popleft()
        began, before = self._seen[0]
        return (self.done - before) / (now - began) if now > began else 0.0


def progress_line(name: str, progress: CopyProgress, width: int) -> str:
    """Return one line about a copy, at most `width` columns: name, bar, percentage, bytes, speed, time left."""
    if progress.waiting:
        return _cut(f"{one_line(name)}  {one_line(progress.waiting)}", width)
    share = min(1.0, progress.done / progress.size) if progress.size else 0.0
    rate = progress.rate()
    parts = [f"{share:4.0%}", f"{size_of(progress.done)} of {size_of(progress.size)}"]
    if rate:
        parts += [f"{size_of(rate)}/s", time_of((progress.size - progress.done) / rate)]
    text = "  ".join(parts)
    room = width - len(text) - 4
    filled = round(share * _BAR)
    bar = "█" * filled + "░" * (_BAR - filled)
    if room >= _BAR + 12:
        return f"{_cut(one_line(name), room - _BAR)}  {bar}  {text}"
    return _cut(f"{_cut(one_line(name), max(8, room))}  {text}", width)


def size_of(size: float) -> str:
    """Return a number of bytes as text of at most 7 characters."""
    unit = 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 99.5 else f"{size:.1f} {_UNITS[unit]}"


def time_of(seconds: float) -> str:
    """Return a time that is left as text."""
    whole = max(0, round(seconds))
    if whole >= 3600:
        return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02} left"
    return f"{whole // 60}:{whole % 60:02} left"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
