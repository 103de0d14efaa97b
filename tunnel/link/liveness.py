"""Detect a dead peer: ping after a silence, and end a connection that stays silent."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from ..tasks import cancelled

PING_AFTER = 3.0  # seconds of silence before a ping
UNANSWERED_S = 1.0  # seconds for the answer to a ping; after that the person is told how long nothing has arrived
DEAD_AFTER = 15.0  # seconds of silence after which the connection counts as dead. What arrives breaks the silence

PROBE_S = 3.0  # seconds for a sign of life when there is a reason to doubt the connection


_NEWEST = 4  # pings


class Liveness:
    """Watches the silence of one link: `ping` sends a ping, `dead` gives the connection up. Our own pauses (a process
    that was stopped, a consumer that holds a frame) do not count: after them, what has arrived is read first."""

    def __init__(
        self, ping: Callable[[int], None], dead: Callable[[float], None], ping_after: float, dead_after: float
    ) -> None:
        self._send_ping = ping
        self._declare_dead = dead
        self._ping_after = ping_after
        self._dead_after = dead_after
        self._heard = time.monotonic()  # or later or earlier than that, after a pause of ours and for a probe
        self._arrived = self._heard
        self.reading = False  # whether the link waits for bytes, or its consumer holds a frame
        self._pinged: float | None = None  # when the oldest ping since the last sign of life was sent
        self._task: asyncio.Task[None] | None = None
        self._newest = (0, 0.0)  # the number of the newest ping, and when it was sent
        self._round_trips: deque[float] = deque(maxlen=_NEWEST)

    def start(self) -> None:
        self.heard()
        self._task = asyncio.create_task(self._watch(), name="link liveness")

    async def close(self) -> None:
        await cancelled(self._task)

    def heard(self) -> None:
        self._heard = self._arrived = time.monotonic()
        self._pinged = None

    def answered(self, number: int) -> None:
        """Note the answer to a ping: the newest one tells how long the way to the host and back takes."""
        newest, sent = self._newest
        if number == newest:
            self._round_trips.append(time.monotonic() - sent)

    @property
    def round_trip_s(self) -> float | None:
        """Seconds to the host and back: the lowest of the newest pings, because a busy host answers late."""
        return min(self._round_trips, default=None)

    def expect(self) -> None:
        """Ask for a sign of life at once: something was sent whose answer the person waits for."""
        if self._pinged is None:
            self._ping(time.monotonic())

    @property
    def unanswered_s(self) -> float:
        """Seconds since something arrived, if a ping has been waiting for its answer; else 0."""
        now = time.monotonic()
        waits = self.reading and self._pinged is not None and now - self._pinged >= UNANSWERED_S
        return now - self._arrived if waits else 0.0

    def probe(self) -> None:
        """Test the connection: it counts as dead unless something arrives within PROBE_S."""
        now = time.monotonic()
        self._heard = min(self._heard, now - self._dead_after + PROBE_S)
        self._ping(now)

    def _ping(self, now: float) -> None:
        if self._pinged is None:
            self._pinged = now
        self._newest = self._newest[0] + 1, time.monotonic()
        self._send_ping(self._newest[0])

    async def _watch(self) -> None:
        step = self._ping_after / 5
        pinged = 0.0
        held = False
        while True:
            before = time.monotonic()
            wait = max(step, self._heard + self._ping_after - before)  # nothing is due earlier
            await asyncio.sleep(wait)
            now = time.monotonic()
            if now - before > wait + self._ping_after or (held and self.reading):
                self._heard = max(self._heard, now - self._dead_after + min(PROBE_S, self._ping_after))
                pinged, self._pinged, self._arrived = 0.0, None, now
            held = not self.reading
            silence = now - self._heard
            if silence < self._ping_after:
                continue
            if silence >= self._dead_after and not held:
                self._declare_dead(silence)
                return
            if now - pinged >= self._ping_after:
                pinged = now
                self._ping(now)
