"""The one seam between the auth proxy and a model API.

The worker speaks the Anthropic Messages API and nothing else. A provider takes one such request, calls its own API with
its own credential, and returns the answer as an Anthropic response. The auth proxy checks the request before, and
buffers the answer behind, so resuming, cancelling and the limits are the same for every provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Protocol, Self

from ..wire.dataclass import dataclass
from .costs import ANSWERED
from .request_body import WholeBody


class ProviderError(Exception):
    """The provider could not be reached, or broke off. `permanent`: the same call will fail again. The text reaches the
    worker, so it contains neither a credential nor any part of the request."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


@dataclass(frozen=True)
class ProviderRequest:
    """A request that the policy has allowed. `path` is the raw request target with its query. `headers` are of the
    closed list, with names in lower case and without a credential. `body` can be read once. `model` is the one that it
    names."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: WholeBody = field(repr=False)
    model: str = ""


@dataclass(frozen=True)
class ProviderResponse:
    """The head of an answer, as the provider sent it, and its body. `chunks` raises ProviderError if it breaks off."""

    status: int
    headers: Sequence[tuple[str, str]]
    chunks: AsyncIterator[bytes]


class Provider(Protocol):
    """One model API with its endpoint and its credential. A context: entering opens its connections, leaving closes
    them. The credential stays inside: neither the response nor an error nor a log line may show it."""

    @property
    def name(self) -> str:
        """The name under which the person knows the provider: its host."""

    @property
    def what_to_check(self) -> str:
        """What a person should look at when the provider cannot be reached, for example "the network, HTTPS_PROXY"."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    def prepare(self) -> None:
        """Load what the first call needs, and do not wait for it: a worker is about to ask."""

    async def credential_name(self) -> str:
        """Say where the credential comes from (`apiKeySource` in system/init). Raise CredentialError, ConfigError."""

    def exchange(self, request: ProviderRequest) -> AbstractAsyncContextManager[ProviderResponse]:
        """Send one request and yield its response as a context; leaving it early aborts the call. Raise ProviderError,
        CredentialError, ConfigError. A 401 to a credential that may be replaced carries `x-should-retry: true`."""


MAX_BODY = 32 * 1024 * 1024  # bytes of a request; the limit of the Messages API

ROUTES = frozenset({("POST", ANSWERED), ("POST", "/v1/messages/count_tokens"), ("GET", "/v1/models")})
"""The methods and paths of the Messages API that a worker may use."""
