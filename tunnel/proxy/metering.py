"""What each model call has used, read from the provider's own answer on its way through the auth proxy.

The worker's word does not count: a hostile one could say that it has used nothing."""

from __future__ import annotations

import time

from ..providers.costs import ANSWERED, DETAILS, BilledRequest, answer_cost, most_cost, tokens_of
from ..providers.json_fields import Json, object_in, text_in
from ..wire.dataclass import dataclass
from ..wire.model_facts import AT_MOST, ESTIMATED, TOKENS, ModelTable, add_usage, at_most, count

_BYTES_PER_TOKEN = 4
_STREAM_BYTES_PER_TOKEN = 40  # an event has 130 bytes for a few tokens
_TOKENS_PER_S, _FAST_TOKENS_PER_S = 50, 150
_MAX_ESTIMATED = 64_000
_COUNTED = frozenset((*TOKENS, *DETAILS, ESTIMATED))
_ANSWER = frozenset(("content", "usage"))


@dataclass(frozen=True)
class TokenCounts:
    """The tokens of a call by their kinds, in the order of TOKENS."""

    input: int
    cache_write: int
    cache_read: int
    output: int


@dataclass(frozen=True)
class CallReport:
    """One model call that has ended. `model` is the name under which it is paid for, "" if none was asked; `priced`:
    its price is known. Token counts are those of the provider. `began` is the Unix time in seconds, the others are
    seconds. `status` is that of the provider, 0 if it was not reached. `digest` is the SHA-256 of the request body in
    hex, "" if it was not sent whole. `estimated`: the provider has not told all of the tokens. `untold`: the answer is
    complete but reports no usage, so the counts are the upper limit."""

    call_id: str
    path: str
    model: str
    tokens: TokenCounts
    cost_usd: float
    began: float
    first_byte_s: float
    duration_s: float
    status: int
    complete: bool
    request_bytes: int
    digest: str
    priced: bool
    estimated: bool = False
    untold: bool = False


@dataclass(frozen=True)
class Reservation:
    """What is set aside for a call until it has ended, in dollars. `row` is its number in the ledger, or 0."""

    usd: float = 0.0
    row: int = 0


class Accounts:
    """Keeps account of the calls of one auth proxy. This one lets every call start, and keeps nothing."""

    async def reserve(self, request: BilledRequest) -> Reservation:
        """Set aside what a call may cost, before anything goes out. May wait for other calls. Raise Refusal."""
        return Reservation()

    def ended(self, report: CallReport, reserved: Reservation) -> None:
        """Note a call that has ended, whatever came of it."""


class CallMeter:
    """Counts what one call uses. `models` says what the models cost."""

    def __init__(self, call_id: str, path: str, models: ModelTable) -> None:
        self._models = models
        self._call_id = call_id
        self._path = path
        self._started = time.monotonic()
        self._first_byte: float | None = None
        self.status = 0  # that of the answer
        self._sent, self._digest = 0, ""
        self._answered = ""  # the model
        self._request: BilledRequest | None = None
        self._usage: Json = {}
        self._received = 0
        self._output_told = False  # the number at the start of a stream is none
        self._cut = False  # a stream that has begun, and not ended
        self._failed = False

    def arrived(self, size: int) -> None:
        self._received += size
        if self._first_byte is None:
            self._first_byte = time.monotonic()

    def asked(self, request: BilledRequest) -> None:
        """Note which model was asked, whether another one may answer, and what makes its answer dearer."""
        self._request = request

    def event(self, event: Json) -> None:
        kind = event.get("type")
        begins = kind == "message_start"
        self._failed |= kind == "error" or bool(event.get("error") and _ANSWER.isdisjoint(event))
        stopped = kind == "message_stop" or isinstance(object_in(event, "delta").get("stop_reason"), str)
        self._cut = begins or (self._cut and not stopped)
        message = object_in(event, "message") if begins else event
        self._answered = text_in(message, "model")[:200] or self._answered
        told: object = message.get("usage")
        if isinstance(told, dict):
            told = {name: value for name, value in told.items() if name in _COUNTED and (value or name in TOKENS)}
            self._output_told |= not begins and count(told, TOKENS[3]) > 0
        add_usage(self._usage, told)

    def uploaded(self, size: int, digest: str) -> None:
        self._sent, self._digest = size, digest

    def report(self, *, complete: bool, given_up: bool = False) -> CallReport:
        """Return what is known of the call at its end. `given_up`: this end broke it off."""
        ended = time.monotonic()
        untold = False
        if complete and self._received and not self._failed:
            untold = self._take_most()
        elif not self._output_told:
            self._estimate(ended - self._started if given_up else 0.0)
        request = self._request
        asked = "" if request is None or (request.others_answer and self._answered) else request.model[:200]
        model = self._models.paid_as(self._answered, asked)
        return CallReport(
            self._call_id,
            self._path,
            model,
            TokenCounts(*tokens_of(self._usage)),
            cost_usd=answer_cost(self._models, model, self._usage),
            began=time.time() - (ended - self._started),
            first_byte_s=(self._first_byte or ended) - self._started,
            duration_s=ended - self._started,
            status=self.status,
            complete=complete,
            request_bytes=self._sent,
            digest=self._digest,
            priced=self._models.facts(model).priced,
            estimated=bool(self._usage.get(ESTIMATED)),
            untold=untold,
        )

    @property
    def _dearer(self) -> Json:
        request, dearer = self._request, Json()
        if request is not None and request.fast:
            dearer["speed"] = "fast"
        if request is not None and request.in_one_country:
            dearer["inference_geo"] = "us"
        return dearer

    def _counts(self) -> bool:
        """Return whether a model was asked, and has answered as far as its server tells."""
        return self.status == 200 and bool(self._digest) and self._path == ANSWERED

    def _take_most(self) -> bool:
        """Take the most that a complete answer can have used, if its provider does not tell: what was paid counts, not
        what could be read. Return whether that was so."""
        if self._request is None or not self._counts():
            return False
        longest = self._request.longest
        usage = self._usage if self._output_told and not self._cut else {**self._usage, TOKENS[3]: 0}
        self._usage = at_most(usage, most_cost(self._models, self._request).tokens - longest, longest)
        if self._usage.get(ESTIMATED) != AT_MOST:
            return False
        self._usage = {**self._dearer, **self._usage}
        return True

    def _estimate(self, seconds: float) -> None:
        """Take what an answer without its end has cost at least. `seconds` is how long the model has worked unheard.
        Without this, a worker could spend any budget by never reading an answer to its end."""
        unanswered = seconds > 0 and not self.status and self._digest and self._path == ANSWERED
        if not (self._counts() or unanswered):
            return
        if not any(count(self._usage, name) for name in TOKENS[:3]):
            self._usage["input_tokens"] = self._sent // _BYTES_PER_TOKEN
        per_s = _FAST_TOKENS_PER_S if self._dearer.get("speed") == "fast" else _TOKENS_PER_S
        made = max(self._received // _STREAM_BYTES_PER_TOKEN, min(int(seconds * per_s), _MAX_ESTIMATED))
        self._usage["output_tokens"] = max(count(self._usage, "output_tokens"), made)
        self._usage = {**self._dearer, **self._usage, ESTIMATED: True}
