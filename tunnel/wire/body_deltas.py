"""Send a request body as a compressed difference to an earlier one, and the events of an answer compressed. `parts` is
a flat list of triples: how many new bytes come next, where a copy begins in the earlier body, its length."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from .dataclass import dataclass
from .frames import CHUNK

MAX_BODIES = 32  # bodies that are kept: of the main agent, of sub-agents, and of where a fork may start

MAX_KEPT = 64 * 1024 * 1024  # bytes of all bodies that are kept. Beyond it the body that was used longest ago goes

T = TypeVar("T")


class BodyCache(Generic[T]):
    """Keeps a value for each body. A body that has grown into a newer one is the first to go."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def newest_first(self) -> Iterator[tuple[str, T]]:
        return ((digest, value) for digest, (_, value) in reversed(self._kept.items()))

    def get(self, digest: str) -> T | None:
        return self._kept[digest][1] if digest in self._kept else None

    def put(self, digest: str, size: int, value: T) -> None:
        """Keep a body as the one used last, unless it is too large."""
        self.drop(digest)
        if size > MAX_KEPT:
            return
        self._kept[digest] = (size, value)
        while len(self._kept) > MAX_BODIES or sum(each for each, _ in self._kept.values()) > MAX_KEPT:
            self._kept.popitem(last=False)

    def was_copied(self, digest: str, count: int) -> None:
        """Note that a newer body has `count` bytes of this one. If they are nearly all, the newer one replaces it."""
        found = self._kept.get(digest)
        if found is not None:
            self._kept.move_to_end(digest, last=count < found[0] * 7 // 8)

    def drop(self, digest: str) -> None:
        self._kept.pop(digest, None)


DICTIONARY = 32 * 1024  # bytes of the earlier body that serve as the dictionary: as many as zlib looks back
MIN_DEFLATED, MIN_PRIMED = 4 * 1024, 128  # bytes from which compressing pays, without a dictionary and with one
MAX_DEFLATED = 4 * 1024 * 1024
_RAW = -15  # neither header nor checksum: the digest of the body covers more


def deflate(pieces: Sequence[bytes], dictionary: bytes = b"") -> bytes:
    made = zlib.compressobj(9, zlib.DEFLATED, _RAW, 9, zdict=dictionary) if dictionary else zlib.compressobj()
    return b"".join([*map(made.compress, pieces), made.flush()])


def inflate(data: bytes, limit: int, dictionary: bytes = b"") -> bytes:
    """Return what was compressed, at most `limit` bytes. Raise zlib.error."""
    made = zlib.decompressobj(_RAW, zdict=dictionary) if dictionary else zlib.decompressobj()
    return made.decompress(data, limit)


MAX_PACKED = CHUNK  # bytes of an answer in one frame, at most

_EVENTS = (
    b'event: message_stop\ndata: {"type":"message_stop"}\n\nevent: ping\ndata: {"type":"ping"}\n\n'
    b'event: message_start\ndata: {"type":"message_start","message":{"model":"claude-","id":"msg_01","type":"message",'
    b'"role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":,'
    b'"cache_creation_input_tokens":0,"cache_read_input_tokens":,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use",'
    b'"id":"toolu_01","name":"","input":{}}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
    b'"usage":{"output_tokens":}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta",'
    b'"partial_json":""}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"'
)
"""What most events look like. Both ends must have the same: another one needs another capability of the worker."""


def pack(events: bytes) -> bytes:
    """Compress a piece of an answer. A small window makes it 15 times as quick as zlib's own choice."""
    made = zlib.compressobj(1, zlib.DEFLATED, -12, 5, zdict=_EVENTS)
    return made.compress(events) + made.flush()


def unpack(data: bytes) -> bytes:
    """Return the piece of an answer, at most a byte more than MAX_PACKED. Raise zlib.error."""
    return inflate(data, MAX_PACKED + 1, _EVENTS)


MIN_COPY = 64  # bytes below which a copy costs more than it saves
MAX_PARTS = 3 * 2000  # the numbers in `parts`, at most


class KnownBody:
    """A body that the other end has, as the pieces that it was made of."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = tuple(pieces)
        self.starts: list[int] = []
        self.places: dict[bytes, int] = {}  # the index of each piece that is worth a copy
        self.size = 0
        for index, piece in enumerate(pieces):
            self.starts.append(self.size)
            self.size += len(piece)
            if len(piece) >= MIN_COPY:
                self.places.setdefault(piece, index)

    def tail(self, count: int) -> bytes:
        return b"".join(self.pieces)[-count:]


class Delta:
    """A body as `parts` and the new bytes. `copied` is the number of bytes that are copies."""

    def __init__(self) -> None:
        self.parts: list[int] = []
        self.new: list[bytes] = []
        self.copied = 0
        self.end = -1  # where the last copy ends in the earlier body, if nothing new came since
        self._count = 0

    def add(self, new: bytes) -> None:
        if new:
            self.new.append(new)
            self._count += len(new)
            self.end = -1

    def copy(self, start: int, count: int) -> None:
        if start == self.end:
            self.parts[-1] += count
        else:
            self.parts += [self._count, start, count]
            self._count = 0
        self.end = start + count
        self.copied += count

    def finish(self) -> None:
        self.parts += [self._count, 0, 0] if self._count else []


def difference(base: KnownBody, pieces: Sequence[bytes]) -> Delta:
    """Return the body of `pieces` as a delta to `base`.

    Pieces that the base has are copied, wherever they stand there. Of any other piece, the start and the end are copied
    that it shares with the piece that comes next in the base: a cache mark has moved, or a block was added."""
    made = Delta()
    near = 0  # the index of the piece that comes next in the base
    for piece in pieces:
        old = base.pieces[near] if near < len(base.pieces) else b""
        goes_on = piece == old != b"" and (made.end == base.starts[near] or len(piece) >= MIN_COPY)
        found = near if goes_on else base.places.get(piece)
        if found is not None:
            made.copy(base.starts[found], len(piece))
            near = found + 1
            continue
        shorter = min(len(old), len(piece))
        start = _common_end(old[:shorter][::-1], piece[:shorter][::-1])
        start = start if start >= MIN_COPY else 0
        shorter -= start
        end = _common_end(old[len(old) - shorter :], piece[len(piece) - shorter :])
        end = end if end >= MIN_COPY else 0
        if start:
            made.copy(base.starts[near], start)
        made.add(piece[start : len(piece) - end])
        if end:
            made.copy(base.starts[near] + len(old) - end, end)
        near += 1
    made.finish()
    return made


def _common_end(one: bytes, other: bytes) -> int:
    """Return how many bytes at their ends two pieces of one length have in common."""
    differing = int.from_bytes(one, "little") ^ int.from_bytes(other, "little")
    return len(one) - (differing.bit_length() + 7) // 8


_ENOUGH = 0.9


@dataclass(frozen=True)
class OutgoingBody:
    """The bytes to send for a body, with fields of `CallOpen`. `copied` bytes are copies of its base."""

    digest: str
    base: str
    parts: list[int]
    sent: int
    deflated: bool
    pieces: Sequence[bytes]
    copied: int = 0
    primed: bool = False


def digest_of(pieces: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def as_it_is(pieces: Sequence[bytes]) -> OutgoingBody:
    return OutgoingBody(digest_of(pieces), "", [], 0, False, pieces)


def shortest(pieces: Sequence[bytes], known: Iterable[tuple[str, KnownBody]], *, primed: bool = False) -> OutgoingBody:
    """Return a body as a delta to that of the `known` bodies which has most of it. `primed`: the other end takes the
    end of that one as a dictionary."""
    size = sum(map(len, pieces))
    base, best, most = "", None, 0
    for digest, body in known:
        overlap = sum(len(piece) for piece in pieces if piece in body.places)
        if overlap > most:
            base, best, most = digest, body, overlap
        if most >= size * _ENOUGH:
            break
    delta = difference(best, pieces) if best is not None else Delta()
    if best is None or len(delta.parts) > MAX_PARTS:
        base, best, delta = "", None, Delta()
        delta.new, delta.parts = list(pieces), [size, 0, 0]
    sent = size - delta.copied
    dictionary = best.tail(DICTIONARY) if best is not None and primed else b""
    if (MIN_PRIMED if dictionary else MIN_DEFLATED) <= sent <= MAX_DEFLATED:
        deflated = deflate(delta.new, dictionary)
        if len(deflated) < sent * _ENOUGH:
            sizes = delta.parts, len(deflated), True
            return OutgoingBody(digest_of(pieces), base, *sizes, [deflated], delta.copied, bool(dictionary))
    if not base:
        return as_it_is(pieces)
    return OutgoingBody(digest_of(pieces), base, delta.parts, sent, False, delta.new, delta.copied)


def chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    whole = b"".join(pieces)
    return (whole[start : start + CHUNK] for start in range(0, len(whole), CHUNK))


_IN_THREAD = 1024 * 1024  # bytes from which bodies are compared in a thread: it takes milliseconds
_MAX_CLIENTS = 2  # clients whose bodies are remembered: the driver, and the one before


class SentBodies:
    """Remembers which bodies each client has, by the name of the client."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, BodyCache[KnownBody]] = OrderedDict()

    async def outgoing(self, client: str, pieces: Sequence[bytes], *, whole: bool, primed: bool) -> OutgoingBody:
        """Return what to send for a body: all of it, or what makes it of an earlier one."""
        if whole:
            return as_it_is(pieces)
        known = list(self._of(client).newest_first())
        if sum(map(len, pieces)) < _IN_THREAD:
            return shortest(pieces, known, primed=primed)
        return await asyncio.to_thread(shortest, pieces, known, primed=primed)

    def arrived(self, client: str, body: OutgoingBody, pieces: Sequence[bytes]) -> None:
        """Note that a client has the body."""
        if body.digest:
            bodies, known = self._of(client), KnownBody(pieces)
            bodies.was_copied(body.base, body.copied)
            bodies.put(body.digest, known.size, known)

    def lost(self, client: str, body: OutgoingBody) -> None:
        self._of(client).drop(body.base)

    def _of(self, client: str) -> BodyCache[KnownBody]:
        found = self._clients.setdefault(client, BodyCache())
        self._clients.move_to_end(client)
        if len(self._clients) > _MAX_CLIENTS:
            self._clients.popitem(last=False)
        return found
