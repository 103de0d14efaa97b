"""What a front gets for a request: an answer to wait for, or a call whose answer is taken as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from ..guards.refusal import Refusal
from ..providers.provider import ProviderError
from ..providers.request_body import as_body
from .call import Call, Reader, ResponseHead

_PIECE = 64 * 1024


class ProxiedResponse:
    """The answer to one call, from the provider or, with `refusal` set, from the proxy itself.

    `offset` is the position of the next byte that `read` returns. Bytes stay in memory until `ack`, or until `body` is
    asked for the next piece.
    """

    def __init__(self, head: ResponseHead, source: Reader | bytes, refusal: Refusal | None = None) -> None:
        self.status = head.status
        self.headers: Mapping[str, str] = head.headers
        self.refusal = refusal
        self._source = source
        self._offset = 0

    @property
    def offset(self) -> int:
        return self._source.offset if isinstance(self._source, Reader) else self._offset

    @property
    def whole(self) -> bytes:
        """All bytes of an answer of the proxy itself."""
        return b"" if isinstance(self._source, Reader) else self._source

    async def read(self, limit: int = _PIECE) -> bytes:
        """Return at most `limit` bytes; b"" at the end.

        Raise ProviderError when the provider broke off, and Superseded when another reader asked for the same call.
        """
        if isinstance(self._source, Reader):
            return await self._source.read(limit)
        piece = self._source[self._offset : self._offset + limit]
        self._offset += len(piece)
        return piece

    def ack(self, offset: int) -> None:
        """Release the bytes before `offset`: the worker has them."""
        if isinstance(self._source, Reader):
            self._source.ack(offset)

    def body(self) -> AsyncIterator[bytes]:
        """Return the bytes as they arrive. Asking for the next piece acknowledges the one before."""
        return self._source.pieces() if isinstance(self._source, Reader) else as_body(self._source)


class CallOwner(Protocol):
    """What a followed call asks for where it cannot go on: the auth proxy."""

    def own_answer(self, failure: Refusal | ProviderError) -> ProxiedResponse:
        """Return the answer of the proxy itself to a call that has failed before it had one."""

    def leave(self, call: Call, reader: Reader) -> None:
        """Give a call up that nobody can resume."""


class FollowedCall:
    """A call whose answer is taken as it comes, without waiting for it: whoever follows it is called when there is
    news. `head` is the head of the answer, that of the proxy's own if no provider has answered."""

    def __init__(self, call: Call, reader: Reader, owner: CallOwner) -> None:
        self._call = call
        self._reader = reader
        self._owner = owner
        self._own: ProxiedResponse | None = None
        self._taken = False  # the proxy's own answer

    @property
    def head(self) -> ResponseHead | None:
        """The head, None until it is known."""
        call = self._call
        if call.head is None and call.failure is not None:
            self._own = self._owner.own_answer(call.failure)
            return ResponseHead(self._own.status, self._own.headers)
        return call.head

    @property
    def over(self) -> bool:
        """Whether all bytes have been taken that will ever come."""
        if self._own is not None:
            return self._taken
        return self._call.over and not self._reader.has_more

    @property
    def whole(self) -> bool:
        """Whether nothing is missing at the end."""
        return self._own is not None or self._call.failure is None

    def take(self) -> bytes | None:
        """Return the next bytes, None if there are none now."""
        if self._own is not None:
            taken, self._taken = self._taken, True
            return None if taken else self._own.whole
        return self._reader.taken()

    def leave(self) -> None:
        """Give the call up, unless it is over."""
        self._call.news = None
        if not self._call.over:
            self._owner.leave(self._call, self._reader)


def own_answer(refusal: Refusal) -> ProxiedResponse:
    """Return the answer of the proxy itself to a call that it refuses."""
    body = refusal.body()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    return ProxiedResponse(ResponseHead(refusal.status, headers), body, refusal)
