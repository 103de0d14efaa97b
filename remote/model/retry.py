"""Errors of model calls, and when a call is made again."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass

_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_KINDS = {
    **dict.fromkeys((400, 413, 422), "invalid_request"),
    **dict.fromkeys((401, 403), "authentication_failed"),
    402: "billing_error",
    404: "model_not_found",
    429: "rate_limit",
    529: "overloaded",
}
_ABOUT_TOOL = re.compile("schema|parameters|propert|name", re.IGNORECASE)
_WHICH_TOOL = re.compile(r"(?:.*\bfunction_?[dD]eclarations|.*?\btools)[.\[](\d{1,4})\b", re.DOTALL)


class Retry(Enum):
    BY_STATUS = "by_status"
    YES = "yes"
    NO = "no"


LAPTOP_BUDGET = "laptop_budget"  # a budget of the laptop is used up
OF_THE_LAPTOP = "laptop_"  # prefix of the auth proxy's own errors: the status means nothing


@dataclass(eq=False)
class ModelError(Exception):
    """`status` is None when nothing answered; `retry_after` is in seconds. `silent`: no word for minutes.
    `wrong_format`: the answer breaks the API's rules. `cut_stream`: it did not come to its end."""

    message: str
    status: int | None = None
    error_type: str = ""
    retry_after: float | None = None
    retry: Retry = Retry.BY_STATUS
    request_id: str = ""
    silent: bool = False
    wrong_format: bool = False
    cut_stream: bool = False

    def __str__(self) -> str:
        return self.message

    @property
    def overloaded(self) -> bool:
        return self.status == 529 and not self.error_type.startswith(OF_THE_LAPTOP)

    @property
    def kind(self) -> str:
        """The public protocol's name of the error."""
        if self.status is None:
            return "unknown"
        return _KINDS.get(self.status, "server_error" if self.status >= 500 else "unknown")

    @property
    def prompt_too_long(self) -> bool:
        return self.status == 413 or (self.status == 400 and "prompt is too long" in self.message.lower())

    def refused_tool(self, names: Sequence[str]) -> str:
        """Return which of the declared tools an API does not take, "" for none."""
        if self.status != 400 or not _ABOUT_TOOL.search(self.message):
            return ""
        named = [name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", self.message)]
        counted = _WHICH_TOOL.match(self.message)
        number = int(counted[1]) if counted else len(names)
        return named[0] if named else names[number] if number < len(names) else ""

    def prose(self, model: str, *, answered: bool = True) -> str:
        """Return what the person is told. `answered`: a summary can make the conversation shorter."""
        if self.prompt_too_long:
            if answered:
                return f"API Error: the conversation is too long for {model} ({self.message}). Send /compact."
            do = "Take it back with /rewind or begin anew with /clear, and send a shorter one."
            return f"API Error: the prompt is too long for {model} ({self.message}). {do}"
        if self.status is None:
            return f"API Error: {self.message}"
        text = f"API Error: {self.status} {self.message}"
        if self.status == 429 and self.retry_after:
            again = time.strftime("%a %H:%M UTC", time.gmtime(time.time() + self.retry_after))
            return f"{text} · send it again in {self.retry_after // 60 + 1:.0f} min, after {again}"
        if self.status == 401:
            return f"{text} · give another key with /login in the REPL, or with `ccb auth login` on your laptop"
        if self.status == 403:
            return f"{text} · check the credential on your laptop with `ccb auth status`"
        if self.status == 404:
            missing = f"the model {model} may not exist or not be open to you"
            return f"{text} · {missing}; choose another with /model in the REPL, or with --model"
        return text


def status_of(error_type: str) -> int:
    return _STATUS_OF_TYPE.get(error_type, 500)


_FIRST_DELAY = 0.5
_MAX_DELAY = 32.0
_JITTER = 0.125
_MAX_RETRY_AFTER = 600.0  # seconds; when a rate limit lasts longer, the person is told instead
_NEVER = 1 << 30
_MAX_DOUBTFUL = 2  # attempts of one call that may end in silence or in a wrong format: these rarely pass by themselves
_RETRIED = (408, 409, 429)


MAX_OVERLOADS = 3  # in one call, before another model takes over


@dataclass(frozen=True)
class RetrySettings:
    """Times are in seconds."""

    max_retries: int = 10
    silence: float = 300.0  # longest time in which a model says nothing, before its answer begins or in it
    thinking_silence: float = 600.0  # the same for a model that thinks

    def over(self, environ: Mapping[str, str]) -> RetrySettings:
        """Read CCB_MAX_RETRIES and CCB_STREAM_IDLE_TIMEOUT_MS."""
        retries = _whole(environ.get("CCB_MAX_RETRIES"))
        silence = _whole(environ.get("CCB_STREAM_IDLE_TIMEOUT_MS"))
        silences = (silence / 1000, silence / 1000) if silence else (self.silence, self.thinking_silence)
        return RetrySettings(self.max_retries if retries is None else retries, *silences)


class RetryPolicy:
    """Decides for one model call. After `max_overloads` it gives up: another model takes over."""

    def __init__(
        self, max_retries: int, chance: Callable[[], float] = random.random, *, max_overloads: int | None = None
    ) -> None:
        self.max_retries = max_retries
        self.attempt = 0  # retries granted so far
        self._max_overloads = max_overloads
        self._chance = chance
        self._seen: Counter[str] = Counter()  # failures, by their class

    def delay(self, failure: ModelError) -> float | None:
        """Return the seconds before the next attempt, None when the failure is final."""
        kind, final = self._class_of(failure)
        self._seen[kind] += 1
        if self.attempt >= self.max_retries or self._seen[kind] >= final:
            return None
        backoff = min(_FIRST_DELAY * 2**self.attempt, _MAX_DELAY) * (1 + _JITTER * self._chance())
        self.attempt += 1
        return failure.retry_after or backoff

    def max_retries_for(self, failure: ModelError) -> int:
        """Return how many attempts are made after this failure, which gets one, and before it, if it goes on so."""
        kind, final = self._class_of(failure)
        return min(self.max_retries, self.attempt - 1 + final - self._seen[kind])

    def _class_of(self, failure: ModelError) -> tuple[str, int]:
        """Return the class of a failure, and the number of the one in its class after which the call fails."""
        if failure.retry is Retry.NO or (failure.retry_after or 0) > _MAX_RETRY_AFTER:
            return "final", 1
        if failure.overloaded and self._max_overloads is not None:
            return "overloaded", self._max_overloads
        if failure.silent or failure.wrong_format:
            return "doubtful", _MAX_DOUBTFUL
        if failure.retry is Retry.YES or failure.status is None:
            return "", _NEVER
        return ("", _NEVER) if failure.status in _RETRIED or failure.status >= 500 else ("final", 1)


def retry_after(value: str | None) -> float | None:
    """Return the seconds in a Retry-After header, None without any. No provider sends the date that HTTP allows."""
    try:
        seconds = float(value or "nan")
    except ValueError:
        return None
    return min(max(0.0, seconds), 1e9) if seconds == seconds else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
