"""The new bytes of a request body, compressed. What is new in a conversation looks like what was said last in it (the
same names, quoting and paths), so the end of the earlier body serves as the dictionary."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

DICTIONARY = 32 * 1024
"""Bytes of the earlier body that serve as the dictionary: as many as zlib looks back."""

MIN_DEFLATED, MIN_PRIMED = 4 * 1024, 128
"""Bytes from which compressing pays, without a dictionary and with one."""

MAX_DEFLATED = 4 * 1024 * 1024

_RAW = -15  # neither header nor checksum: the digest of the body covers more


def deflate(pieces: Sequence[bytes], dictionary: bytes = b"") -> bytes:
    """Return the bytes of `pieces` compressed."""
    made = zlib.compressobj(9, zlib.DEFLATED, _RAW, 9, zdict=dictionary) if dictionary else zlib.compressobj()
    return b"".join([*map(made.compress, pieces), made.flush()])


def inflate(data: bytes, limit: int, dictionary: bytes = b"") -> bytes:
    """Return what was compressed, or the first `limit` bytes of it. Raise zlib.error."""
    made = zlib.decompressobj(_RAW, zdict=dictionary) if dictionary else zlib.decompressobj()
    return made.decompress(data, limit)
