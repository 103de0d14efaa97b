"""How much a sender keeps under way, so that other things on the same connection hardly wait."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from .channel import MAX_PIECE, PIECE


class Window:
    """How many bytes may be under way. It grows while they arrive as quickly as the first ones did, and shrinks when
    they begin to queue up: a queue would hold up whatever else uses the connection. It does not shrink below what
    arrives within QUEUE_S: so much is no queue, and an end that was busy for a moment looks like one."""

    SMALLEST, FIRST, LARGEST = PIECE, 4 * PIECE, 256 * PIECE
    QUEUE_S = 0.15
    RATE_S = 3.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = self.FIRST
        self.sent = 0
        self._clock = clock
        self._taken = self._asked = 0
        self._best_s = float("inf")
        self._shrunk_at = 0
        self._marks: deque[tuple[int, float]] = deque()
        self._seen: deque[tuple[float, int]] = deque()

    @property
    def full(self) -> bool:
        """Whether the next piece has to wait."""
        return self.sent - self._taken >= self.size

    @property
    def piece(self) -> int:
        """How many bytes go at once."""
        return max(PIECE, min(MAX_PIECE, self.size // 8))

    def send(self, size: int) -> bool:
        """Note a piece that is sent now. Return whether the other end must say when it has it: a count wakes up both
        ends, so a few for each window are enough."""
        self.sent += size
        self._marks.append((self.sent, self._clock()))
        if self.sent - self._asked < self.size // 8 and not self.full:
            return False
        self._asked = self.sent
        return True

    def take(self, total: int) -> None:
        """Note how many bytes the other end has taken so far."""
        arrived, self._taken = max(0, min(total, self.sent) - self._taken), max(self._taken, min(total, self.sent))
        delay_s, now = 0.0, self._clock()
        self._seen.append((now, self._taken))
        while self._seen[0][0] < now - self.RATE_S:
            self._seen.popleft()
        while self._marks and self._marks[0][0] <= self._taken:
            delay_s = now - self._marks.popleft()[1]
        self._best_s = min(self._best_s, delay_s or self._best_s)
        if delay_s <= self._best_s + self.QUEUE_S:
            self.size = min(self.LARGEST, self.size + arrived)
        elif self._taken > self._shrunk_at:  # once for all that is under way now
            self._shrunk_at = self.sent
            if self.size == self.SMALLEST:
                self._best_s = delay_s  # there is no queue of ours: the connection itself has become slower
            least = max(self.SMALLEST, int(self._rate() * self.QUEUE_S))
            self.size = min(self.size, max(least, self.size * 3 // 4))

    def _rate(self) -> float:
        """Return how many bytes a second have arrived lately."""
        (began, before), (now, taken) = self._seen[0], self._seen[-1]
        return (taken - before) / (now - began) if now > began else 0.0
