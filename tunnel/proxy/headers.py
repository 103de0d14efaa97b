"""The headers that may cross the proxy. Each direction has a closed list, so a new header does not leak by default."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

_REMEMBERED = 256  # names of headers, which are the same in all calls
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


def request_headers(from_worker: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of the worker that a provider may see, with names in lower case.

    Credentials of any kind and headers of the connection (host, transfer-encoding, …) stay behind.
    """
    return _passing(from_worker.items(), _request_name)


def response_headers(from_provider: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of the provider that the worker may see, with names in lower case.

    Cookies, account names and details of the server stay behind.
    """
    return _passing(from_provider, _response_name)


def _passing(headers: Iterable[tuple[str, str]], passed_name: Callable[[str], str]) -> dict[str, str]:
    return {passed: value for name, value in headers if (passed := passed_name(name))}


@lru_cache(_REMEMBERED)
def _request_name(name: str) -> str:
    """Return the name in lower case, "" if the header stays behind."""
    name = name.lower()
    allowed = name in _REQUEST_NAMES or name.startswith(_REQUEST_PREFIXES)
    return name if name == "idempotency-key" or (allowed and not _CREDENTIAL_LIKE.search(name)) else ""


@lru_cache(_REMEMBERED)
def _response_name(name: str) -> str:
    """Return the name in lower case, "" if the header stays behind."""
    name = name.lower()
    return name if name in _RESPONSE_NAMES or name.startswith(_RESPONSE_PREFIXES) else ""
