"""The answer that a front gets for a request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from ..guards.refusal import Refusal
from ..providers.request_body import as_body
from .call import Reader, ResponseHead

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


def own_answer(refusal: Refusal) -> ProxiedResponse:
    """Return the answer of the proxy itself to a call that it refuses."""
    body = refusal.body()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    return ProxiedResponse(ResponseHead(refusal.status, headers), body, refusal)
