"""Which headers cross the proxy. Both directions pass a closed list, so nothing new leaks by default."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_CREDENTIAL_LIKE = re.compile(r"auth|cookie|credential|nonce|secret|token$|(^|-)(api-?)?key|organization|workspace")

_REQUEST_NAMES = frozenset({"accept", "content-type", "user-agent", "x-app", "idempotency-key"})
_REQUEST_PREFIXES = ("anthropic-", "x-stainless-", "x-claude-")

_RESPONSE_NAMES = frozenset(
    {
        "content-type",
        "content-encoding",
        "content-length",
        "cache-control",
        "request-id",
        "x-request-id",
        "retry-after",
        "retry-after-ms",
        "x-should-retry",
    }
)
_RESPONSE_PREFIXES = ("anthropic-ratelimit-", "anthropic-priority-", "anthropic-fast-")


def request_headers(inbound: Mapping[str, str]) -> dict[str, str]:
    """The headers of the worker that go to the provider, names in lower case: no credential of any kind, nothing of the
    hop. The body is asked for unencoded, so that its bytes can be passed on as they come."""
    kept = {}
    for name, value in inbound.items():
        name = name.lower()
        if name == "idempotency-key" or (
            (name in _REQUEST_NAMES or name.startswith(_REQUEST_PREFIXES)) and not _CREDENTIAL_LIKE.search(name)
        ):
            kept[name] = value
    kept["accept-encoding"] = "identity"
    return kept


def response_headers(upstream: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers of the provider that go to the worker, names in lower case: no cookie, no account, no server detail."""
    kept = {}
    for name, value in upstream:
        name = name.lower()
        if name in _RESPONSE_NAMES or name.startswith(_RESPONSE_PREFIXES):
            kept[name] = value
    return kept
