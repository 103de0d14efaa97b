"""What the auth proxy gives to a provider, and gets from it: see `http_client.Provider`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import field
from typing import Self

from ..wire.dataclass import dataclass
from .costs import ANSWERED


class ProviderError(Exception):
    """The provider could not be reached, or broke off. `permanent`: the same call will fail again. The text reaches the
    worker, so it contains neither a credential nor any part of the request."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class WholeBody:
    """A body that is all there. Reading takes each piece out of the list `left`, so no piece is held twice."""

    def __init__(self, *pieces: bytes) -> None:
        self.left = [*reversed(pieces)]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop()

    @property
    def size(self) -> int:
        return sum(map(len, self.left))

    def whole(self) -> bytes:
        return b"".join(reversed(self.left))

    def take(self) -> bytes:
        whole = self.whole()
        self.left.clear()
        return whole


@dataclass(frozen=True)
class ProviderRequest:
    """A request that the policy has allowed. `path` is the raw request target with its query. `headers` are of the
    closed list, with names in lower case and without a credential. `body` can be read once. `model` is the one that it
    names, with its provider in front. `api` is the name of the API in which it asks, "" for Messages."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: WholeBody = field(repr=False)
    model: str = ""
    api: str = ""


@dataclass(frozen=True)
class ProviderResponse:
    """The head of an answer, as the provider sent it, and its body. `chunks` raises ProviderError if it breaks off."""

    status: int
    headers: Sequence[tuple[str, str]]
    chunks: AsyncIterator[bytes]

    async def start(self, most: int = 64 * 1024) -> bytes:
        """Return the body, or its first `most` bytes, and read no more than that."""
        body = bytearray()
        async for chunk in self.chunks:
            body += chunk
            if len(body) >= most:
                break
        return bytes(body[:most])


MAX_BODY = 32 * 1024 * 1024  # bytes of a request; the limit of the Messages API

ROUTES = frozenset({("POST", ANSWERED), ("POST", "/v1/messages/count_tokens"), ("GET", "/v1/models")})
"""The methods and paths of the Messages API that a worker may use."""
