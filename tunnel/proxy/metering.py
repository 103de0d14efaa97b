"""What each model call has used, read from the provider's own answer on its way through the auth proxy.

The worker's word does not count: a hostile one could say that it has used nothing.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from ..wire.dataclass import dataclass
from ..wire.models import cost_usd, count

Json = dict[str, Any]

_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


@dataclass(frozen=True)
class CallReport:
    """One model call that has ended. `model` is the one that has answered, "" if none has. Token counts are those of
    the provider. `began` is the Unix time in seconds, the others are seconds. `status` is that of the provider, 0 if it
    was not reached. `digest` is the SHA-256 of the request body in hex, "" if it was not sent whole."""

    call_id: str
    path: str
    model: str
    input_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int
    output_tokens: int
    cost_usd: float
    began: float
    first_byte_s: float
    duration_s: float
    status: int
    complete: bool
    request_bytes: int
    digest: str


class Accounts(Protocol):
    """Keeps account of the calls of one auth proxy."""

    def check(self, size: int | None) -> float:
        """Return the dollars to reserve for a call with a body of `size` bytes. Raise Refusal if no call may start."""

    def ended(self, report: CallReport, reserved: float) -> None:
        """Note a call that has ended, whatever came of it."""


class NoAccounts:
    """Lets every call start, and keeps nothing."""

    def check(self, size: int | None) -> float:
        """See Accounts."""
        return 0.0

    def ended(self, report: CallReport, reserved: float) -> None:
        """See Accounts."""


class CallMeter:
    """Counts what one call uses."""

    def __init__(self, call_id: str, path: str) -> None:
        self._call_id = call_id
        self._path = path
        self._began, self._started = time.time(), time.monotonic()
        self._first_byte: float | None = None
        self._status = 0
        self._sent, self._digest = 0, ""
        self._model = ""
        self._usage: Json = {}

    def answer(self, status: int) -> None:
        """Note the status of the answer."""
        self._status = status

    def arrived(self) -> None:
        """Note that bytes of the answer have arrived."""
        if self._first_byte is None:
            self._first_byte = time.monotonic()

    def event(self, event: Json) -> None:
        """Read one event of the answer, or an answer in one piece."""
        message = event.get("message") if event.get("type") == "message_start" else event
        if isinstance(message, dict):
            if isinstance(message.get("model"), str):
                self._model = message["model"][:200]
            if isinstance(message.get("usage"), dict):
                self._usage |= {name: value for name, value in message["usage"].items() if name in _TOKENS and value}

    def uploaded(self, size: int, digest: str) -> None:
        """Note how many bytes of the request were sent, and the SHA-256 of a whole one."""
        self._sent, self._digest = size, digest

    def report(self, *, complete: bool) -> CallReport:
        """Return what is known of the call at its end."""
        ended = time.monotonic()
        counts = [count(self._usage, each) for each in _TOKENS]
        return CallReport(
            self._call_id,
            self._path,
            self._model,
            input_tokens=counts[0],
            cache_write_tokens=counts[1],
            cache_read_tokens=counts[2],
            output_tokens=counts[3],
            cost_usd=cost_usd(self._model, self._usage),
            began=self._began,
            first_byte_s=(self._first_byte or ended) - self._started,
            duration_s=ended - self._started,
            status=self._status,
            complete=complete,
            request_bytes=self._sent,
            digest=self._digest,
        )
