"""When a session is connected again: how long an attempt may take, how long to wait for the next one, and when to give
up.

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

    EVENT = "event"  # the network changed, or the person wants to drive
    PERSON = "person"  # the person wants to try now, and may be asked


class RetrySchedule:
    """The attempts of one session. `failed` counts those in a row; the patience runs from the moment a connection was
    lost."""

    def __init__(self, patience: float, waits: Callable[[], Iterator[float]]) -> None:
        self.failed = 0
        self.garbled = 0
        """Connections in a row over which the host sent what cannot be read."""
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
        """The attempt has succeeded or failed: from here on `retry` and `hurry` only cut waits short."""
        self._limit = None

    def fail(self, *, garbled: bool) -> None:
        """A connection was lost or not made."""
        self.failed += 1
        self.garbled += garbled

    def granted(self) -> None:
        """The host has let this client in."""
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
        """Return the error for a patience that has ended; `error` is the last failure."""
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
        """Wait no longer."""
        if self._nudge is not Nudge.PERSON:
            self._nudge = why
        self._nudged.set()

    def retry(self) -> None:
        """The person wants to try now. An attempt that has been under way for a while is given up for a new one."""
        self.nudge(Nudge.PERSON)
        if time.monotonic() - self._began > _STUCK_S:
            self._give_up()

    def hurry(self) -> None:
        """The network may be another one: give up an attempt that is under way, for it may hang on the old one."""
        self.nudge()
        self._give_up()

    def _give_up(self) -> None:
        """End the attempt that is under way; the next one begins at once."""
        if self._limit is not None and not self._limit.expired():
            self._hurried = True
            self._limit.reschedule(asyncio.get_running_loop().time())
