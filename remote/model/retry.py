"""When a failed model call is tried again, and after how long: the one place in the worker that retries."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable

from .errors import ModelError, Retry

_FIRST_DELAY = 0.5
_LONGEST_DELAY = 32.0
_JITTER = 0.125
_LONGEST_RETRY_AFTER = 600.0  # a limit that lasts longer is told to the person instead of waited for
_MOST_UNANSWERED = 3  # attempts of one call that wait for an answer in vain, each for `head_timeout`
_RETRIED = (408, 409, 429)


@dataclass(frozen=True)
class RetrySettings:
    """Limits of one model call. Times in seconds."""

    max_retries: int = 10
    idle_timeout: float = 90.0  # silence inside an answer, pings count as sound
    head_timeout: float = 360.0  # until the answer's head is there

    @staticmethod
    def from_env(environ: Mapping[str, str]) -> RetrySettings:
        """CCB_MAX_RETRIES and CCB_STREAM_IDLE_TIMEOUT_MS; what is no number is ignored."""
        default = RetrySettings()
        retries = _whole(environ.get("CCB_MAX_RETRIES"))
        idle = _whole(environ.get("CCB_STREAM_IDLE_TIMEOUT_MS"))
        return RetrySettings(
            max_retries=default.max_retries if retries is None else retries,
            idle_timeout=default.idle_timeout if not idle else idle / 1000,
        )


class RetryPolicy:
    """The decisions of one model call; counts its failures."""

    def __init__(self, max_retries: int, chance: Callable[[], float] = random.random) -> None:
        self.max_retries = max_retries
        self.attempt = 0  # retries granted so far
        self._chance = chance
        self._unauthorized = 0
        self._unanswered = 0

    def delay(self, failure: ModelError) -> float | None:
        """Seconds to wait before the next attempt, or None when the failure is final."""
        if self.attempt >= self.max_retries or not self._worth_it(failure):
            return None
        backoff = min(_FIRST_DELAY * 2**self.attempt, _LONGEST_DELAY) * (1 + _JITTER * self._chance())
        self.attempt += 1
        return failure.retry_after or backoff

    def most(self, failure: ModelError) -> int:
        """How many retries there will be at most if every attempt from now on fails like this one."""
        if failure.unanswered:
            return min(self.max_retries, self.attempt - 1 + _MOST_UNANSWERED - self._unanswered)
        if failure.status == 401 and failure.retry is not Retry.YES:
            return self.attempt
        return self.max_retries

    def _worth_it(self, failure: ModelError) -> bool:
        if failure.retry is Retry.NO:
            return False
        if failure.retry_after is not None and failure.retry_after > _LONGEST_RETRY_AFTER:
            return False
        if failure.unanswered:
            self._unanswered += 1
            return self._unanswered < _MOST_UNANSWERED
        if failure.retry is Retry.YES or failure.status is None:
            return True
        if failure.status == 401:  # once: the proxy may have refreshed the credential by then
            self._unauthorized += 1
            return self._unauthorized == 1
        return failure.status in _RETRIED or failure.status >= 500


def retry_after(value: str | None, wall: float) -> float | None:
    """Seconds meant by a Retry-After header (a number or an HTTP date); None when absent or unreadable."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            # Here, since it takes a tenth of the daemon's start and hardly anybody sends a date.
            from email.utils import parsedate_to_datetime

            seconds = parsedate_to_datetime(value).timestamp() - wall
        except (ImportError, TypeError, ValueError, OverflowError):  # the Python of a long session may be gone
            return None
    return max(0.0, seconds) if seconds == seconds else None


def should_retry(value: str | None) -> Retry:
    """The meaning of an x-should-retry header."""
    return {"true": Retry.YES, "false": Retry.NO}.get(value or "", Retry.BY_STATUS)


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
