"""How long a daemon without clients keeps running."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import time
from collections.abc import Callable

from ccb.tunnel.wire.dataclass import dataclass

from ..system.deadline import within

log = logging.getLogger(__name__)

GRACE_S = 24 * 3600.0
"""Seconds that a session may work, or wait for an answer, without any client."""

IDLE_S = 30 * 60.0
"""Seconds that the daemon of an idle session stays without any client. The journal stays after it."""

_UNPROMPTED_S = 20.0  # the same, for a session that never had a prompt
_LOOK_S = 5.0


class Activity(enum.Enum):
    """The activity of a session, which decides how long its daemon stays."""

    NOT_BEGUN = "not begun"  # no client has driven it yet
    UNPROMPTED = "unprompted"  # the session never had a prompt
    IDLE = "idle"
    BUSY = "busy"  # a turn runs, a request is open, or a command runs in the background


@dataclass(frozen=True)
class LifeLimits:
    """Seconds without any client after which the daemon ends: `idle_s` when the session is idle, `grace_s` in any
    case."""

    grace_s: float = GRACE_S
    idle_s: float = IDLE_S


class Lifetime:
    """Decides when a daemon without clients ends.

    `released` is true when the last driver said that it no longer needs the session, or no client has driven yet.
    """

    def __init__(self, limits: LifeLimits, activity: Callable[[], Activity]) -> None:
        self.released = True
        self._limits = limits
        self._activity = activity
        self._clients = 0
        self._changed = asyncio.Event()
        self._alone_since = self._busy_until = time.monotonic()

    def count(self, clients: int, *, last_left: bool = False) -> None:
        """Note the present number of connections. `last_left`: the last attached client has just left. Connections that
        only ask for a hello do not prolong the daemon's life."""
        self._clients = clients
        if last_left:
            self._alone_since = time.monotonic()
        self._changed.set()

    async def over(self) -> None:
        """Return when the daemon should end because no client needs the session any more."""
        while True:
            self._changed.clear()
            if self._clients:
                await self._changed.wait()
                continue
            left = self._due() - time.monotonic()
            if left <= 0:
                log.info("no client for %.0f s: the worker ends", time.monotonic() - self._alone_since)
                return
            # the session does not announce that it has become idle or busy, so look again soon
            with contextlib.suppress(asyncio.TimeoutError):
                await within(min(left, _LOOK_S), self._changed.wait())

    def _due(self) -> float:
        """Return the monotonic time at which the daemon ends if nothing changes before."""
        alone, activity = self._alone_since, self._activity()
        if activity is Activity.NOT_BEGUN:
            return alone
        if activity is Activity.BUSY:
            self._busy_until = time.monotonic()
            return alone + self._limits.grace_s
        if self.released:
            return alone
        idle_s = self._limits.idle_s
        if activity is Activity.UNPROMPTED:
            idle_s = min(_UNPROMPTED_S, idle_s)
        return min(max(alone, self._busy_until) + idle_s, alone + self._limits.grace_s)
