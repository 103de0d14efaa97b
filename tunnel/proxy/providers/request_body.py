"""Bodies of requests as values, for providers that look into them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

from ..guards.request_body import read_request

Json = dict[str, Any]

_IN_THREAD = 64 * 1024  # bytes from which on a body is read in a thread: it takes a millisecond and more


async def whole_body(body: AsyncIterator[bytes]) -> bytes:
    """Return a body that arrives in pieces."""
    return b"".join([piece async for piece in body])


async def read_json(body: bytes) -> Json:
    """Return the object in a body, as `read_request` reads it. Raise Refusal."""
    return await asyncio.to_thread(read_request, body) if len(body) > _IN_THREAD else read_request(body)


class WholeBody:
    """A body that is all there. Reading it takes each piece out of the list `left`: who has read all of it may never
    ask for more."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.left = pieces
        pieces.reverse()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop()

    @property
    def size(self) -> int:
        """The bytes that are left."""
        return sum(map(len, self.left))

    def take(self) -> bytes:
        """Return all that is left, at once."""
        whole = b"".join(reversed(self.left))
        self.left.clear()
        return whole


def as_body(data: bytes) -> WholeBody:
    """Return a body in one piece."""
    return WholeBody([data])
