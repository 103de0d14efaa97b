"""The request bodies of a session that the laptop keeps, so that the worker sends only what is new in the next one.

The body that comes out is exactly the one whose SHA-256 the worker named, and everything behind this module (policy,
providers) sees that one only. A copy can only be made of a body of the same session."""

from __future__ import annotations

import asyncio
import hashlib
import time
import zlib
from collections.abc import AsyncIterator, Sequence

from ..providers.provider import MAX_BODY
from ..wire.body_deltas import DICTIONARY, MAX_KEPT, MAX_PARTS, BodyCache, inflate
from ..wire.frames import CallOpen
from .policy import MAX_BURST, MAX_PER_MINUTE, CallPace

_MAX_IN_FLIGHT = MAX_KEPT  # bytes of all bodies that are collected or made at the same time
_IN_THREAD = 1024 * 1024  # bytes from which a body is made in a thread: it takes milliseconds
_PIECE = 256 * 1024


class CannotRebuild(Exception):
    """The laptop cannot make the body of its parts: it does not have the earlier body, or the parts do not fit."""


class BodyStore:
    """Keeps the bodies of one session, over all its connections, and makes new ones of them. `made` are the bytes of
    all bodies, `sent` those that the worker has sent for them."""

    def __init__(self) -> None:
        self.made = self.sent = 0
        self._kept: BodyCache[bytes] = BodyCache()
        self._in_flight = 0
        self._pace = CallPace(MAX_BURST, MAX_PER_MINUTE, time.monotonic())

    def keep(self, digest: str, body: bytes) -> None:
        """Keep a body that came whole, under the digest that it has, whatever the worker says."""
        self._kept.put(digest, len(body), body)
        self.made += len(body)
        self.sent += len(body)

    async def rebuilt(self, opened: CallOpen, arriving: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Make the body of a call of the parts that arrive. Raise CannotRebuild if the worker must send all of it."""
        fits = opened.size <= MAX_BODY and self._in_flight + opened.size <= _MAX_IN_FLIGHT
        if not (fits and opened.sent <= opened.size and not self._pace.wait(time.monotonic())):
            raise CannotRebuild
        self._in_flight += opened.size
        try:
            return _pieces(await self._rebuilt(opened, arriving))
        finally:
            self._in_flight -= opened.size

    async def _rebuilt(self, opened: CallOpen, arriving: AsyncIterator[bytes]) -> bytes:
        base = self._kept.get(opened.base) if opened.base else b""
        if base is None:
            raise CannotRebuild
        pieces, sent = [], 0
        while sent < opened.sent and (piece := await anext(arriving, b"")):
            pieces.append(piece)
            sent += len(piece)
        work = opened, base, b"".join(pieces)
        try:
            if sent != opened.sent:
                raise ValueError("more or less came than was announced")
            body = _make(*work) if opened.size < _IN_THREAD else await asyncio.to_thread(_make, *work)
        except (ValueError, zlib.error) as error:
            raise CannotRebuild from error
        self._kept.was_copied(opened.base, sum(opened.parts[2::3]))
        self._kept.put(opened.digest, len(body), body)
        self.made += len(body)
        self.sent += sent
        return body


def _make(opened: CallOpen, base: bytes, sent: bytes) -> bytes:
    """Return the body. Nothing larger than its announced length is ever made. Raise ValueError or zlib.error."""
    count = new_bytes(opened.parts, len(base), opened.size)
    if opened.deflated:
        sent = inflate(sent, count + 1, base[-DICTIONARY:] if opened.primed else b"")
    if len(sent) != count:
        raise ValueError("the new bytes are not as many as the parts say")
    body = rebuild(base, opened.parts, sent)
    if hashlib.sha256(body).hexdigest() != opened.digest:
        raise ValueError("the body is another one")
    return body


def new_bytes(parts: Sequence[int], base_size: int, size: int) -> int:
    """Return how many new bytes a body needs. Raise ValueError unless `parts` make exactly `size` bytes, with copies
    that lie in a base of `base_size` bytes."""
    if len(parts) % 3 or len(parts) > MAX_PARTS:
        raise ValueError("parts are not triples, or too many")
    new, starts, counts = parts[::3], parts[1::3], parts[2::3]
    if any(start + count > base_size for start, count in zip(starts, counts, strict=True)):
        raise ValueError("a copy is not within the earlier body")
    if sum(new) + sum(counts) != size:
        raise ValueError("the parts do not make the announced length")
    return sum(new)


def rebuild(base: bytes, parts: Sequence[int], new: bytes) -> bytes:
    old, fresh, at = memoryview(base), memoryview(new), 0
    pieces = []
    for index in range(0, len(parts), 3):
        count, start, copied = parts[index : index + 3]
        pieces += [fresh[at : at + count], old[start : start + copied]]
        at += count
    return b"".join(pieces)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), _PIECE):
        yield body[start : start + _PIECE]
