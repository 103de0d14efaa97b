"""Decide which requests the auth proxy lets through. The check comes before a credential is read or a connection is
opened."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import field
from functools import lru_cache

from ..wire.dataclass import dataclass
from .guards.costs import ANSWERED
from .guards.nonce import NonceGuard
from .guards.refusal import Refusal
from .guards.request_limits import RequestLimits

MAX_BODY = 32 * 1024 * 1024
"""Largest request body in bytes; the limit of the Messages API."""

MAX_CALLS = 64
"""How many model calls of one auth proxy may be under way at the same time."""

MAX_BURST, MAX_PER_MINUTE = 300, 300
"""How many model calls one auth proxy starts at once, and in a minute. Eight sub-agents with quick answers stay below;
a worker that only wants to spend money does not."""

ROUTES = frozenset({("POST", ANSWERED), ("POST", "/v1/messages/count_tokens"), ("GET", "/v1/models")})
"""The methods and paths of the Messages API that a worker may use."""

_QUERY = re.compile(r"[A-Za-z0-9_.~=&,:+*@-]{0,1024}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\uffff]*")
_MAX_VALUE = 8192
_MAX_HEADERS = 64


@lru_cache(256)
def _is_name(name: str) -> bool:
    return bool(_NAME.fullmatch(name))


@lru_cache(256)
def _path_of(target: str) -> tuple[str, bool]:
    """Return the path of a target, and whether its query may pass. Nearly all calls have the same target."""
    path, _, query = target.partition("?")
    return path, bool(_QUERY.fullmatch(query))


def _are_values(values: Collection[str]) -> bool:
    together = "".join(values)
    if len(together) <= _MAX_VALUE and together.isascii() and together.isprintable():  # all requests of a worker
        return True
    return all(len(each) <= _MAX_VALUE and _VALUE.fullmatch(each) for each in values)


@dataclass(frozen=True)
class RequestHead:
    """A model call as a front received it.

    `id` identifies the call permanently; a call with an empty id cannot be resumed. `path` is the raw request target
    with its query. `size` is the announced length of the body in bytes, None if it was not announced.
    """

    id: str
    nonce: str
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    size: int | None

    def __repr__(self) -> str:
        return f"RequestHead({self.id!r}, {self.method} {self.path!r}, {self.size} bytes)"


class WrongNonce(Refusal):
    """The request did not bring the nonce of its connection, or its connection has tried too many wrong ones."""


@dataclass(frozen=True)
class Policy:
    """The limits of one auth proxy. A path must equal an allowed one byte for byte, so no other spelling can pass.

    `max_body` and `max_answer` are bytes, None for no limit. `lasts_s` are the seconds for which calls may be made.
    """

    max_body: int = MAX_BODY
    max_answer: int | None = None
    lasts_s: float | None = None
    requests: RequestLimits = field(default_factory=RequestLimits)
    max_calls: int = MAX_CALLS
    max_burst: int = MAX_BURST
    max_per_minute: float = MAX_PER_MINUTE
    routes: frozenset[tuple[str, str]] = ROUTES

    def check(self, head: RequestHead, nonce: NonceGuard) -> None:
        """Raise Refusal unless `head` is allowed. The nonce is compared first and in constant time."""
        if not nonce.admits(head.nonce):
            said = "too many wrong nonces were tried" if nonce.closed else "the nonce is missing or wrong"
            raise WrongNonce(403, f"{said} on this connection", headers={"x-should-retry": "false"})
        path, allowed = _path_of(head.path)
        if (head.method, path) not in self.routes:
            raise Refusal(404, "the auth proxy does not serve this method and path")
        if not allowed:
            raise Refusal(404, "the auth proxy does not serve this query")
        if len(head.headers) > _MAX_HEADERS:
            raise Refusal(400, f"more than {_MAX_HEADERS} request headers")
        if not (_are_values(head.headers.values()) and all(map(_is_name, head.headers))):
            raise Refusal(400, "a request header is malformed")
        self.check_size(head.size or 0)

    def check_size(self, size: int) -> None:
        """Raise Refusal if a body of `size` bytes is over the limit."""
        if size > self.max_body:
            raise Refusal(413, f"the request body is over the limit of {self.max_body} bytes")
