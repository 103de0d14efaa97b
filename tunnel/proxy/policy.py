"""Decide which requests the auth proxy lets through. The check comes before a credential is read or a connection is
opened."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..secret import Secret

MAX_BODY = 32 * 1024 * 1024
"""Largest request body in bytes; the limit of the Messages API."""

MAX_CALLS = 64
"""How many model calls of one auth proxy may be under way at the same time."""

MAX_BURST, MAX_PER_MINUTE = 300, 300
"""How many model calls one auth proxy starts at once, and in a minute. Eight sub-agents with quick answers stay below;
a worker that only wants to spend money does not."""

ROUTES = frozenset({("POST", "/v1/messages"), ("POST", "/v1/messages/count_tokens"), ("GET", "/v1/models")})
"""The methods and paths of the Messages API that a worker may use."""

_QUERY = re.compile(r"[A-Za-z0-9_.~=&,:+*@-]{0,1024}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\uffff]{0,8192}")
_MAX_HEADERS = 64

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    529: "overloaded_error",
}


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


class Refusal(Exception):
    """An answer of the proxy itself: an error in the shape of the Messages API.

    `message` reaches the worker. `kind` is the error type. A type that starts with `laptop_` says that no provider has
    answered, so the status was chosen by the proxy.
    """

    def __init__(self, status: int, message: str, *, kind: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or _ERROR_TYPES.get(status, "api_error")
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """Return the JSON text of the answer."""
        return json.dumps({"type": "error", "error": {"type": self.kind, "message": self.message}}).encode()


@dataclass(frozen=True)
class Policy:
    """The limits of one auth proxy. A path must equal an allowed one byte for byte, so no other spelling can pass."""

    max_body: int = MAX_BODY
    max_calls: int = MAX_CALLS
    max_burst: int = MAX_BURST
    max_per_minute: float = MAX_PER_MINUTE
    routes: frozenset[tuple[str, str]] = ROUTES

    def check(self, head: RequestHead, nonce: Secret) -> None:
        """Raise Refusal unless `head` is allowed. The nonce is compared first and in constant time."""
        if not nonce or not nonce.matches(head.nonce):
            raise Refusal(403, "the nonce of this connection is missing or wrong", headers={"x-should-retry": "false"})
        path, _, query = head.path.partition("?")
        if (head.method, path) not in self.routes:
            raise Refusal(404, "the auth proxy does not serve this method and path")
        if not _QUERY.fullmatch(query):
            raise Refusal(404, "the auth proxy does not serve this query")
        if len(head.headers) > _MAX_HEADERS:
            raise Refusal(400, f"more than {_MAX_HEADERS} request headers")
        for name, value in head.headers.items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise Refusal(400, "a request header is malformed")
        self.check_size(head.size or 0)

    def check_size(self, size: int) -> None:
        """Raise Refusal if a body of `size` bytes is over the limit."""
        if size > self.max_body:
            raise Refusal(413, f"the request body is over the limit of {self.max_body} bytes")
