"""Decides whether and when a failed model call is tried again. Nothing else in the worker retries."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass

from .errors import ModelError, Retry

_FIRST_DELAY = 0.5
_MAX_DELAY = 32.0
_JITTER = 0.125
_MAX_RETRY_AFTER = 600.0  # seconds; when a rate limit lasts longer, the person is told instead
_MAX_DOUBTFUL = 2  # attempts of one call that may end in silence or in a wrong format: these rarely pass by themselves
_RETRIED = (408, 409, 429)


MAX_OVERLOADS = 3
"""How often a model may be overloaded in one call before another one takes over."""


@dataclass(frozen=True)
class RetrySettings:
    """Limits of one model call. Times are in seconds."""

    max_retries: int = 10
    silence: float = 300.0  # longest time in which a model says nothing, before its answer begins or in it
    thinking_silence: float = 600.0  # the same for a model that thinks

    @staticmethod
    def from_env(environ: Mapping[str, str]) -> RetrySettings:
        """Return the limits that the environment sets."""
        return RetrySettings().over(environ)

    def over(self, environ: Mapping[str, str]) -> RetrySettings:
        """Read CCB_MAX_RETRIES and CCB_STREAM_IDLE_TIMEOUT_MS. A value that is not a whole number is ignored."""
        retries = _whole(environ.get("CCB_MAX_RETRIES"))
        silence = _whole(environ.get("CCB_STREAM_IDLE_TIMEOUT_MS"))
        return RetrySettings(
            max_retries=self.max_retries if retries is None else retries,
            silence=self.silence if not silence else silence / 1000,
            thinking_silence=self.thinking_silence if not silence else silence / 1000,
        )


class RetryPolicy:
    """Decides for one model call, and counts its failures. With `max_overloads`, it gives up when the model was
    overloaded so often, because there is another one."""

    def __init__(
        self, max_retries: int, chance: Callable[[], float] = random.random, *, max_overloads: int | None = None
    ) -> None:
        self.max_retries = max_retries
        self._overloads_left = max_overloads
        self.attempt = 0  # retries granted so far
        self._chance = chance
        self._unauthorized = 0
        self._doubtful = 0

    def delay(self, failure: ModelError) -> float | None:
        """Return the seconds to wait before the next attempt, or None when the failure is final."""
        if self.attempt >= self.max_retries or not self._worth_it(failure):
            return None
        backoff = min(_FIRST_DELAY * 2**self.attempt, _MAX_DELAY) * (1 + _JITTER * self._chance())
        self.attempt += 1
        return failure.retry_after or backoff

    def max_retries_for(self, failure: ModelError) -> int:
        """Return the maximum number of retries if every further attempt fails like this one."""
        if failure.silent or failure.wrong_format:
            return min(self.max_retries, self.attempt - 1 + _MAX_DOUBTFUL - self._doubtful)
        if failure.overloaded and self._overloads_left is not None:
            return min(self.max_retries, self.attempt - 1 + self._overloads_left)
        if failure.status == 401 and failure.retry is not Retry.YES:
            return self.attempt
        return self.max_retries

    def _worth_it(self, failure: ModelError) -> bool:
        if failure.retry is Retry.NO:
            return False
        if failure.overloaded and self._overloads_left is not None:
            self._overloads_left -= 1
            if self._overloads_left <= 0:
                return False
        if failure.retry_after is not None and failure.retry_after > _MAX_RETRY_AFTER:
            return False
        if failure.silent or failure.wrong_format:
            self._doubtful += 1
            return self._doubtful < _MAX_DOUBTFUL
        if failure.retry is Retry.YES or failure.status is None:
            return True
        if failure.status == 401:  # retry once: the proxy may have refreshed the credential
            self._unauthorized += 1
            return self._unauthorized == 1
        return failure.status in _RETRIED or failure.status >= 500


def retry_after(value: str | None, wall: float) -> float | None:
    """Return the seconds in a Retry-After header (a number or an HTTP date); None when it is absent or unreadable.
    `wall` is the time now, in seconds since the epoch."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            # Imported here: the import takes a tenth of the daemon's start, and hardly any server sends a date.
            from email.utils import parsedate_to_datetime

            seconds = parsedate_to_datetime(value).timestamp() - wall
        except (
            ImportError,
            TypeError,
            ValueError,
            OverflowError,
        ):  # ImportError: Python was removed while the session ran
            return None
    return min(max(0.0, seconds), 1e9) if seconds == seconds else None


def should_retry(value: str | None) -> Retry:
    """Return the meaning of an x-should-retry header."""
    return {"true": Retry.YES, "false": Retry.NO}.get(value or "", Retry.BY_STATUS)


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
