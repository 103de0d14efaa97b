"""Whether the worker of a session may call models at all: until its time is over, or the person takes that back."""

from __future__ import annotations

import time
from collections.abc import Callable

from .refusal import Refusal

REVOKED, EXPIRED = "laptop_revoked", "laptop_expired"
"""The error types of calls after the person has taken the grant back, and after its time."""

_NO_RETRY = {"x-should-retry": "false"}


class CallGrant:
    """Begins with the auth proxy and lasts `lasts_s` seconds, without end if that is None. `now` gives monotonic
    seconds."""

    def __init__(self, lasts_s: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ends_at = None if lasts_s is None else now() + lasts_s
        self._revoked = False

    @property
    def revoked(self) -> bool:
        """Whether the person has taken it back."""
        return self._revoked

    def revoke(self) -> None:
        """Take it back."""
        self._revoked = True

    def left_s(self) -> float | None:
        """Return the seconds until it expires, None if it does not."""
        return None if self._ends_at is None else max(0.0, self._ends_at - self._now())

    def refusal(self) -> Refusal | None:
        """Return the answer to every call from now on, None while calls may start."""
        if self._revoked:
            text = "this session may call no models any more: the person has revoked that on the laptop"
            return Refusal(403, text, kind=REVOKED, headers=_NO_RETRY)
        if self._ends_at is not None and self._now() >= self._ends_at:
            text = "this session may call no models any more: the time that the laptop's settings give it is over"
            return Refusal(403, text, kind=EXPIRED, headers=_NO_RETRY)
        return None
