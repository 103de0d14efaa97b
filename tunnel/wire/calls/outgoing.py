"""What the worker sends for a request body: all of it, or what is new in it, compressed where that pays."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence

from ..dataclass import dataclass
from .call_frames import CHUNK
from .deltas import MAX_PARTS, KnownBody, difference

_MIN_DEFLATED = 4 * 1024
_MAX_DEFLATED = 4 * 1024 * 1024
_ENOUGH = 0.9


@dataclass(frozen=True)
class OutgoingBody:
    """The bytes to send for a body. The fields have the names of those of `Open`, where they are described. `copied` is
    the number of bytes that the laptop copies from its base."""

    digest: str
    base: str
    parts: list[int]
    sent: int
    deflated: bool
    pieces: Sequence[bytes]
    copied: int = 0


def digest_of(pieces: Iterable[bytes]) -> str:
    """Return the SHA-256 of a body, as a name for it."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def as_it_is(pieces: Sequence[bytes]) -> OutgoingBody:
    """Return a body that is sent as it is."""
    return OutgoingBody(digest_of(pieces), "", [], 0, False, pieces)


def shortest(pieces: Sequence[bytes], known: Iterable[tuple[str, KnownBody]]) -> OutgoingBody:
    """Return a body as a delta to that one of the `known` bodies, with their digests, which has most of it."""
    size = sum(map(len, pieces))
    base, best, most = "", None, 0
    for digest, body in known:
        overlap = body.overlap(pieces)
        if overlap > most:
            base, best, most = digest, body, overlap
        if most >= size * _ENOUGH:
            break
    new, parts, copied = pieces, [size, 0, 0], 0
    if best is not None:
        delta = difference(best, pieces)
        if len(delta.parts) <= MAX_PARTS:
            new, parts, copied = delta.new, delta.parts, delta.copied
        else:
            base = ""
    sent = size - copied
    deflated = _deflated(new) if _MIN_DEFLATED <= sent <= _MAX_DEFLATED else None
    if deflated is not None and len(deflated) < sent * _ENOUGH:
        return OutgoingBody(digest_of(pieces), base, parts, len(deflated), True, [deflated], copied)
    return OutgoingBody(digest_of(pieces), base, parts, sent, False, new, copied) if base else as_it_is(pieces)


def chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a body for one `data` frame after the other."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        for start in range(0, len(piece), CHUNK):
            part = piece[start : start + CHUNK]
            if size + len(part) > CHUNK:
                yield b"".join(held)
                held, size = [], 0
            held.append(part)
            size += len(part)
    if held:
        yield b"".join(held)


def _deflated(pieces: Sequence[bytes]) -> bytes:
    made = zlib.compressobj()
    return b"".join([*map(made.compress, pieces), made.flush()])
