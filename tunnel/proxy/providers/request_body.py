"""Bodies of requests as values, for providers that look into them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ..guards.request_body import read_request

Json = dict[str, Any]

_IN_THREAD = 64 * 1024  # bytes from which on a body is read in a thread: it takes a millisecond and more


async def whole_body(body: AsyncIterator[bytes]) -> bytes:
    """Return a body that arrives in pieces."""
    return b"".join([piece async for piece in body])


async def read_json(body: bytes) -> Json:
    """Return the object in a body, as `read_request` reads it. Raise Refusal."""
    return await asyncio.to_thread(read_request, body) if len(body) > _IN_THREAD else read_request(body)


async def in_pieces(pieces: list[bytes]) -> AsyncIterator[bytes]:
    """Yield a body piece by piece, and take each one out of the list: who has read all of it may never ask for more."""
    pieces.reverse()
    while pieces:
        yield pieces.pop()


def as_body(data: bytes) -> AsyncIterator[bytes]:
    """Return a body in one piece."""
    return in_pieces([data])
