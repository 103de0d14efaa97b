"""What each model call has used, read from the provider's own answer on its way through the auth proxy.

The worker's word does not count: a hostile one could say that it has used nothing.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from ..wire.dataclass import dataclass
from ..wire.models import TOKENS, ModelTable, count
from .guards.costs import ANSWERED, DETAILS, BilledRequest, answer_cost, tokens_of

Json = dict[str, Any]

_BYTES_PER_TOKEN = 4
_STREAM_BYTES_PER_TOKEN = 40  # an event has 130 bytes for a few tokens
_TOKENS_PER_S, _FAST_TOKENS_PER_S = 50, 150
_MAX_ESTIMATED = 64_000
_COUNTED = frozenset((*TOKENS, *DETAILS))


@dataclass(frozen=True)
class CallReport:
    """One model call that has ended. `model` is the name under which it is paid for, "" if none was asked; `priced`:
    its price is known. Token counts are those of the provider. `began` is the Unix time in seconds, the others are
    seconds. `status` is that of the provider, 0 if it was not reached. `digest` is the SHA-256 of the request body in
    hex, "" if it was not sent whole."""

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
    priced: bool


@dataclass(frozen=True)
class Reservation:
    """What is set aside for a call until it has ended, in dollars. `row` is its number in the ledger, 0 if it is not
    there."""

    usd: float = 0.0
    row: int = 0


class Accounts(Protocol):
    """Keeps account of the calls of one auth proxy."""

    async def reserve(self, request: BilledRequest) -> Reservation:
        """Set aside what a call may cost, before anything of its request goes out. May wait for other calls. Raise
        Refusal if it may not go out."""

    def ended(self, report: CallReport, reserved: Reservation) -> None:
        """Note a call that has ended, whatever came of it."""


class NoAccounts:
    """Lets every call start, and keeps nothing."""

    async def reserve(self, request: BilledRequest) -> Reservation:
        """See Accounts."""
        return Reservation()

    def ended(self, report: CallReport, reserved: Reservation) -> None:
        """See Accounts."""


class CallMeter:
    """Counts what one call uses. `models` says what the models cost."""

    def __init__(self, call_id: str, path: str, models: ModelTable) -> None:
        self._models = models
        self._call_id = call_id
        self._path = path
        self._began, self._started = time.time(), time.monotonic()
        self._first_byte: float | None = None
        self._status = 0
        self._sent, self._digest = 0, ""
        self._asked, self._answered = "", ""  # models
        self._others_answer = False
        self._usage: Json = {}
        self._dearer: Json = {}
        self._received = 0
        self._final = False

    def answer(self, status: int) -> None:
        """Note the status of the answer."""
        self._status = status

    def arrived(self, size: int) -> None:
        """Note that bytes of the answer have arrived."""
        self._received += size
        if self._first_byte is None:
            self._first_byte = time.monotonic()

    def asked(self, request: BilledRequest) -> None:
        """Note which model was asked, whether another one may answer, and what makes its answer dearer."""
        self._asked, self._others_answer = request.model[:200], request.others_answer
        self._dearer = {"speed": "fast"} if request.fast else {}
        self._dearer |= {"inference_geo": "us"} if request.in_one_country else {}

    def event(self, event: Json) -> None:
        """Read one event of the answer, or an answer in one piece."""
        message = event.get("message") if event.get("type") == "message_start" else event
        if isinstance(message, dict):
            if isinstance(message.get("model"), str):
                self._answered = message["model"][:200]
            if isinstance(message.get("usage"), dict):
                self._final = self._final or event.get("type") != "message_start"
                self._usage |= {name: value for name, value in message["usage"].items() if name in _COUNTED and value}

    def uploaded(self, size: int, digest: str) -> None:
        """Note how many bytes of the request were sent, and the SHA-256 of a whole one."""
        self._sent, self._digest = size, digest

    def report(self, *, complete: bool, given_up: bool = False) -> CallReport:
        """Return what is known of the call at its end. `given_up`: this end broke it off."""
        ended = time.monotonic()
        if not complete and not self._final:
            self._estimate(ended - self._started if given_up else 0.0)
        asked = "" if self._others_answer and self._answered else self._asked
        counts, model = tokens_of(self._usage), self._models.paid_as(self._answered, asked)
        return CallReport(
            self._call_id,
            self._path,
            model,
            input_tokens=counts[0],
            cache_write_tokens=counts[1],
            cache_read_tokens=counts[2],
            output_tokens=counts[3],
            cost_usd=answer_cost(self._models, model, self._usage),
            began=self._began,
            first_byte_s=(self._first_byte or ended) - self._started,
            duration_s=ended - self._started,
            status=self._status,
            complete=complete,
            request_bytes=self._sent,
            digest=self._digest,
            priced=self._models.facts(model).priced,
        )

    def _estimate(self, seconds: float) -> None:
        """Take what an answer without its end has cost at least: it is paid for, but only its end says how much.
        `seconds` is how long the model has worked that was not waited for. Without this, a worker could spend any
        budget by never reading an answer to its end."""
        counts = self._status == 200 or (seconds > 0 and not self._status)
        if not counts or not self._digest or self._path != ANSWERED:
            return
        if not self._usage:
            self._usage["input_tokens"] = self._sent // _BYTES_PER_TOKEN
        per_s = _FAST_TOKENS_PER_S if self._dearer.get("speed") == "fast" else _TOKENS_PER_S
        made = max(self._received // _STREAM_BYTES_PER_TOKEN, min(int(seconds * per_s), _MAX_ESTIMATED))
        self._usage["output_tokens"] = max(count(self._usage, "output_tokens"), made)
        self._usage = {**self._dearer, **self._usage}
