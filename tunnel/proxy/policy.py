"""What a worker may ask: the nonce, the pace, the time, routes, headers and limits.

The limits hold for what the provider gets. So a body is checked whole before its first byte goes on."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase

from ..providers.api_errors import NO_RETRY, Refusal
from ..providers.costs import ANSWERED
from ..providers.foreign_api import ForeignCall
from ..providers.json_fields import Json
from ..providers.provider import MAX_BODY, ROUTES
from ..secret import Secret
from ..wire.dataclass import dataclass

NOT_ALLOWED = "laptop_not_allowed"  # the error type of calls that the settings of the laptop exclude
REVOKED, EXPIRED = "laptop_revoked", "laptop_expired"  # the error types of calls after the grant has ended


class CallGrant:
    """Whether calls may be made at all: for `lasts_s` seconds from now on, without end if that is None."""

    def __init__(self, lasts_s: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ends_at = None if lasts_s is None else now() + lasts_s
        self.revoked = False  # whether the person has taken it back

    def left_s(self) -> float | None:
        return None if self._ends_at is None else max(0.0, self._ends_at - self._now())

    def refusal(self) -> Refusal | None:
        """Return the answer to every call from now on, None while calls may start."""
        if self.revoked:
            text = "this session may call no models any more: the person has revoked that on the laptop"
            return Refusal(403, text, kind=REVOKED, headers=NO_RETRY)
        if self._ends_at is not None and self._now() >= self._ends_at:
            text = "this session may call no models any more: the time that the laptop's settings give it is over"
            return Refusal(403, text, kind=EXPIRED, headers=NO_RETRY)
        return None


MAX_WRONG = 10  # wrong nonces after which a front answers nothing any more, not even a request with the right one


class NonceGuard:
    """Compares what requests bring with the nonce of their connection. An empty nonce matches nothing. `wrong` counts
    the requests that had to go."""

    def __init__(self, nonce: Secret) -> None:
        self._nonce = nonce
        self.wrong = 0

    def matches(self, presented: str) -> bool:
        """Return whether a request with this nonce would be admitted. Compare in constant time."""
        return presented != "" and self._nonce.matches(presented) and self.wrong < MAX_WRONG


class CallPace:
    """At most `burst` calls at once, and `per_minute` in the long run. All times are monotonic seconds."""

    def __init__(self, burst: int, per_minute: float, now: float) -> None:
        self._burst = burst
        self._per_second = per_minute / 60
        self._left = float(burst)
        self._filled_at = now

    def wait(self, now: float) -> float:
        """Take one call and return 0, or return the seconds until there is one."""
        self._left = min(float(self._burst), self._left + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._per_second


@dataclass(frozen=True)
class RequestLimits:
    """`models` are patterns such as `claude-*`, empty for any model; `max_output_tokens` the largest `max_tokens`."""

    models: Sequence[str] = ()
    max_output_tokens: int | None = None

    def allows(self, model: object) -> bool:
        named = isinstance(model, str) and bool(model)
        return not self.models or (named and any(fnmatchcase(str(model), each) for each in self.models))

    def check(self, request: Json, *, answers: bool) -> None:
        """Raise Refusal unless a request is allowed. `answers`: the model answers, so the request names the length."""
        others = list(_others(request))
        for model in (request.get("model"), *(each.get("model") for each in others)):
            if not self.allows(model):
                allowed, named = ", ".join(self.models), str(model)[:200]
                raise not_allowed(f"the laptop's settings do not allow the model {named!r} here, only {allowed}")
        most = self.max_output_tokens
        lengths = [request.get("max_tokens"), *(each["max_tokens"] for each in others if each.get("max_tokens"))]
        for tokens in lengths if answers else ():  # -1 means no limit to some servers
            if most is not None and not (type(tokens) is int and 0 <= tokens <= most):
                said = f"the laptop's settings allow answers of {most} tokens here, not of {str(tokens)[:20]}"
                raise not_allowed(said)


def _others(request: Json) -> Iterator[Json]:
    """Yield what names another model that may answer: those that take over, and tools that ask one. What does not name
    it (`"fallbacks": "default"`) is an object without a model."""
    for member in ("fallbacks", "models"):
        found = request.get(member)
        for each in found if isinstance(found, list) else [found] if found else []:
            yield each if isinstance(each, dict) else {"model": each if member == "models" else None}
    tools = request.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and "model" in tool:
            yield tool


def not_allowed(text: str) -> Refusal:
    return Refusal(403, text, kind=NOT_ALLOWED, headers=NO_RETRY)


_CREDENTIAL_LIKE = re.compile(r"auth|cookie|credential|nonce|secret|token$|(^|-)(api-?)?key|organization|workspace")

_REQUEST_NAMES = frozenset({"accept", "user-agent", "x-app", "idempotency-key"})
_REQUEST_PREFIXES = ("anthropic-", "x-stainless-", "x-claude-")

_RESPONSE_NAMES = frozenset(
    (
        *("content-type", "content-encoding", "content-length", "cache-control", "request-id", "x-request-id"),
        *("retry-after", "retry-after-ms", "x-should-retry"),
    )
)
_RESPONSE_PREFIXES = ("anthropic-ratelimit-", "anthropic-priority-", "anthropic-fast-")


def request_headers(from_worker: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of the worker that a provider may see, with names in lower case. Credentials of any kind and
    headers of the connection (host, transfer-encoding, …) stay behind."""
    passed = {}
    for name, value in from_worker.items():
        name = name.lower()
        allowed = name in _REQUEST_NAMES or name.startswith(_REQUEST_PREFIXES)
        if name == "idempotency-key" or (allowed and not _CREDENTIAL_LIKE.search(name)):
            passed[name] = value
    return passed


def response_headers(from_provider: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers for the worker, in lower case. Cookies, account names and server details stay behind."""
    named = ((name.lower(), value) for name, value in from_provider)
    return {name: value for name, value in named if name in _RESPONSE_NAMES or name.startswith(_RESPONSE_PREFIXES)}


MAX_CALLS = 64  # how many model calls of one auth proxy may be under way
MAX_BURST, MAX_PER_MINUTE = 300, 300
"""Model calls of one auth proxy at once, and in a minute. Eight sub-agents with quick answers stay below."""


_QUERY = re.compile(r"[A-Za-z0-9_.~=&,:+*@-]{0,1024}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\uffff]*")
_MAX_VALUE = 8192
_MAX_HEADERS = 64


@dataclass(frozen=True)
class RequestHead:
    """A model call as a front received it. `id` identifies the call permanently; one with an empty id cannot be
    resumed. `path` is the raw request target with its query, `size` the announced length of the body in bytes. `keep`:
    a later body may be sent as a change of this one. `foreign`: it asks in another API than Messages."""

    id: str
    nonce: str = field(repr=False)
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    size: int
    keep: bool = False
    foreign: ForeignCall | None = None

    @property
    def answers(self) -> bool:
        """Whether a model answers, so that it costs money."""
        return self.foreign.answers if self.foreign is not None else self.path.partition("?")[0] == ANSWERED


@dataclass(frozen=True)
class Policy:
    """The limits of one auth proxy. A path must equal an allowed one byte for byte, so no other spelling can pass.
    `max_body` and `max_answer` are bytes. `lasts_s` are the seconds for which calls may be made."""

    max_body: int = MAX_BODY
    max_answer: int | None = None
    lasts_s: float | None = None
    requests: RequestLimits = field(default_factory=RequestLimits)
    max_calls: int = MAX_CALLS
    max_burst: int = MAX_BURST
    max_per_minute: float = MAX_PER_MINUTE

    def check(self, head: RequestHead) -> None:
        """Raise Refusal unless `head` is allowed. Its nonce has been compared before."""
        path, _, query = head.path.partition("?")
        if head.foreign is None and (head.method, path) not in ROUTES:
            raise Refusal(404, "the auth proxy does not serve this method and path")
        if not _QUERY.fullmatch(query):
            raise Refusal(404, "the auth proxy does not serve this query")
        if len(head.headers) > _MAX_HEADERS:
            raise Refusal(400, f"more than {_MAX_HEADERS} request headers")
        for name, value in head.headers.items():
            if not (_NAME.fullmatch(name) and len(value) <= _MAX_VALUE and _VALUE.fullmatch(value)):
                raise Refusal(400, "a request header is malformed")
        if head.size > self.max_body:
            raise Refusal(413, f"the request body is over the limit of {self.max_body} bytes")
