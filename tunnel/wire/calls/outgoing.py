"""What the worker sends for a request body: all of it, or what is new in it, compressed where that pays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from ..dataclass import dataclass
from .call_frames import CHUNK
from .compression import DICTIONARY, MAX_DEFLATED, MIN_DEFLATED, MIN_PRIMED, deflate
from .deltas import MAX_PARTS, KnownBody, difference

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
    primed: bool = False


def digest_of(pieces: Iterable[bytes]) -> str:
    """Return the SHA-256 of a body, as a name for it."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def as_it_is(pieces: Sequence[bytes]) -> OutgoingBody:
    """Return a body that is sent as it is."""
    return OutgoingBody(digest_of(pieces), "", [], 0, False, pieces)


def shortest(pieces: Sequence[bytes], known: Iterable[tuple[str, KnownBody]], *, primed: bool = False) -> OutgoingBody:
    """Return a body as a delta to that one of the `known` bodies, with their digests, which has most of it. `primed`:
    the other end takes the end of that one as a dictionary."""
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
            base, best = "", None
    sent = size - copied
    dictionary = best.tail(DICTIONARY) if best is not None and primed else b""
    if (MIN_PRIMED if dictionary else MIN_DEFLATED) <= sent <= MAX_DEFLATED:
        deflated = deflate(new, dictionary)
        if len(deflated) < sent * _ENOUGH:
            name = digest_of(pieces)
            return OutgoingBody(name, base, parts, len(deflated), True, [deflated], copied, bool(dictionary))
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
