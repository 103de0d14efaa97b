"""Compiled copies of the worker, as tests put them on a host."""

from __future__ import annotations

import hashlib
import marshal

from ccb.remote.compiled.copy import header_of


def packed(codes: dict[str, bytes], digest: str) -> bytes:
    """Return the bytes of a copy with this marshalled code, by file, of the bundle with this hash."""
    body = header_of(digest) + marshal.dumps(codes)
    return hashlib.sha256(body).digest() + body
