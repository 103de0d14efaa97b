"""When a session is connected again: how long an attempt may take, how long to wait for the next one, when to give up.

Times are monotonic seconds of the laptop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from ccb.tunnel.errors import CcbError, ConnectionLost
from ccb.tunnel.link.backoff import Pace

ATTEMPT_S = 60.0
"""Seconds an attempt to reconnect may take when nobody is asked anything."""

_STUCK_S = 5.0


class Attempts:
    """The attempts of one session. `failed` counts those in a row; `patience` runs from the moment a connection was lost."""

    def __init__(self, patience: float, waits: Callable[[], Iterator[float]]) -> None:
        self.failed = 0
        self._patience = patience
        self._pace = Pace(waits)
        self._lost_at: float | None = None
        self._limit: asyncio.Timeout | None = None
        self._began = 0.0
        self._hurried = False
        self._nudged = asyncio.Event()

    def begin(self, *, endless: bool) -> asyncio.Timeout:
        """The limit of an attempt that begins now; `endless` when the person may be asked something."""
        left = ATTEMPT_S if self._lost_at is None else self._lost_at + self._patience - time.monotonic()
        limit = asyncio.timeout(None if endless else max(0.0, min(ATTEMPT_S, left)))
        self._limit, self._began = None if endless else limit, time.monotonic()
        return limit

    def over(self) -> None:
        """The attempt has come to something; from here on there is only waiting to cut short."""
        self._limit = None

    def fail(self) -> None:
        """A connection was lost or not made."""
        self.failed += 1

    def granted(self) -> None:
        """The host has let this client in."""
        self.failed, self._lost_at = 0, None
        self._pace.connected()

    def patience_left(self) -> float:
        """Seconds until a session whose connection is lost is given up; nudges from before are forgotten."""
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        self._nudged.clear()
        return self._lost_at + self._patience - now

    def exhausted(self, error: CcbError, do: str) -> ConnectionLost:
        """The patience has ended; `error` was the last one."""
        return ConnectionLost(
            f"the connection was lost and could not be made again within {self._patience:g} s",
            evidence="\n".join(part for part in (error.what, error.evidence) if part),
            do=do,
        )

    def next_wait(self, *, at_once: bool = False) -> float:
        """Seconds before the next attempt."""
        hurried, self._hurried = self._hurried, False
        return 0.0 if at_once or hurried else self._pace.next()

    async def pause(self, seconds: float) -> None:
        """Wait for so long, or until there is a reason to try at once."""
        try:
            async with asyncio.timeout(seconds):
                await self._nudged.wait()
        except TimeoutError:
            pass

    def nudge(self) -> None:
        """Wait no longer."""
        self._nudged.set()

    def retry(self) -> None:
        """The person wants to try now: also instead of an attempt that has been under way for a while."""
        self.nudge()
        if time.monotonic() - self._began > _STUCK_S:
            self._give_up()

    def hurry(self) -> None:
        """The network may be another one: what is under way may hang on the old one."""
        self.nudge()
        self._give_up()

    def _give_up(self) -> None:
        """The next attempt begins at once."""
        if self._limit is not None and not self._limit.expired():
            self._hurried = True
            self._limit.reschedule(asyncio.get_running_loop().time())
