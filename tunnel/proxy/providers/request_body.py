"""Bodies of requests as values, for providers that look into them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

Json = dict[str, Any]

_IN_THREAD = 512 * 1024  # bytes from which on a body is read in a thread: it takes milliseconds


async def read_json(body: bytes) -> Json | None:
    """Return the object in a body, None if it is not one."""
    try:
        data = await asyncio.to_thread(json.loads, body) if len(body) > _IN_THREAD else json.loads(body)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


async def as_body(data: bytes) -> AsyncIterator[bytes]:
    """Yield a body in one piece."""
    yield data
