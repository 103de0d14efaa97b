"""How many model calls a worker may start in a while: a bucket that fills steadily."""

from __future__ import annotations


class CallPace:
    """At most `burst` calls at once, and `per_minute` in the long run. All times are monotonic seconds."""

    def __init__(self, burst: int, per_minute: float, now: float) -> None:
        self._burst = burst
        self._per_second = per_minute / 60
        self._left = float(burst)
        self._filled_at = now

    def wait(self, now: float) -> float:
        """Take one call and return 0, or return the seconds until there is one."""
        self._left = min(float(self._burst), self._left + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._per_second
