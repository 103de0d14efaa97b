"""When to reconnect a session: how long an attempt may take, how long to wait for the next one, and when to give up.

Times are monotonic seconds of the laptop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from enum import Enum

from ccb.tunnel.errors import CcbError, ConnectionLost
from ccb.tunnel.link.backoff import Pace

ATTEMPT_S = 60.0
"""Seconds an attempt to reconnect may take when nobody is asked anything."""

_STUCK_S = 5.0


class Nudge(Enum):
    """Why a wait for the next attempt ended early."""

    EVENT = "event"  # the network changed, or the person asked to drive
    PERSON = "person"  # the person wants to try now, and may be asked to log in


class RetrySchedule:
    """The reconnect attempts of one session. `failed` counts the failures in a row. The patience (in seconds) starts
    when a connection is lost."""

    def __init__(self, patience: float, waits: Callable[[], Iterator[float]]) -> None:
        self.failed = 0
        self.garbled = 0
        """Connections in a row on which the host sent unreadable data."""
        self._patience = patience
        self._pace = Pace(waits)
        self._lost_at: float | None = None
        self._limit: asyncio.Timeout | None = None
        self._began = 0.0
        self._hurried = False
        self._nudge: Nudge | None = None
        self._nudged = asyncio.Event()

    def begin(self, *, endless: bool) -> asyncio.Timeout:
        """Return the time limit of an attempt that begins now. It is `endless` if the person may be asked something."""
        left = ATTEMPT_S if self._lost_at is None else self._lost_at + self._patience - time.monotonic()
        limit = asyncio.timeout(None if endless else max(0.0, min(ATTEMPT_S, left)))
        self._limit, self._began = None if endless else limit, time.monotonic()
        return limit

    def over(self) -> None:
        """Note that the attempt has succeeded or failed. From now on `retry` and `hurry` only cut waits short."""
        self._limit = None

    def fail(self, *, garbled: bool) -> None:
        """Count a connection that was lost or could not be made. `garbled`: the host sent unreadable data over it."""
        self.failed += 1
        self.garbled += garbled

    def granted(self) -> None:
        """Reset the schedule: the host has granted an attach."""
        self.failed, self._lost_at = 0, None
        self._pace.connected()

    def patience_left(self) -> float:
        """Return the seconds until a session whose connection is lost is given up. Forgets earlier nudges."""
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        self._nudge = None
        self._nudged.clear()
        return self._lost_at + self._patience - now

    def exhausted(self, error: CcbError, do: str) -> ConnectionLost:
        """Return the error to raise when the patience has run out. `error` is the last failure, `do` what the person
        can do."""
        return ConnectionLost(
            f"the connection was lost and could not be made again within {self._patience:g} s",
            evidence="\n".join(part for part in (error.what, error.evidence) if part),
            do=do,
        )

    def next_wait(self, *, at_once: bool = False) -> float:
        """Return the seconds before the next attempt."""
        hurried, self._hurried = self._hurried, False
        return 0.0 if at_once or hurried else self._pace.next()

    async def pause(self, seconds: float) -> Nudge | None:
        """Wait, or return early with the reason to try at once."""
        try:
            async with asyncio.timeout(seconds):
                await self._nudged.wait()
        except TimeoutError:
            return None
        return self._nudge

    def nudge(self, why: Nudge = Nudge.EVENT) -> None:
        """End the current wait, or the next one if none is running."""
        if self._nudge is not Nudge.PERSON:
            self._nudge = why
        self._nudged.set()

    def retry(self) -> None:
        """Try now, because the person wants to. Replace an attempt that has been running for a while with a new one."""
        self.nudge(Nudge.PERSON)
        if time.monotonic() - self._began > _STUCK_S:
            self._give_up()

    def hurry(self) -> None:
        """Try now, because the network may have changed. Give up a running attempt: it may hang on the old network."""
        self.nudge()
        self._give_up()

    def _give_up(self) -> None:
        """End the running attempt. The next one begins at once."""
        if self._limit is not None and not self._limit.expired():
            self._hurried = True
            self._limit.reschedule(asyncio.get_running_loop().time())
