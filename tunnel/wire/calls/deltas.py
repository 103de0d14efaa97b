"""One request body in terms of an earlier one: which ranges are copied, and the bytes that are new.

`parts` is a flat list of triples: how many new bytes come next, then where a copy begins in the earlier body, and how
long it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dataclass import dataclass

MIN_COPY = 64
"""Bytes below which a copy costs more than it saves."""

MAX_PARTS = 3 * 2000
"""The numbers in `parts`, at most."""


class KnownBody:
    """A body that the other end has, as the pieces that it was made of."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = tuple(pieces)
        self.starts: list[int] = []
        self._places: dict[bytes, int] = {}
        self.size = 0
        for index, piece in enumerate(pieces):
            self.starts.append(self.size)
            self.size += len(piece)
            if len(piece) >= MIN_COPY:
                self._places.setdefault(piece, index)

    def place(self, piece: bytes) -> int | None:
        """Return the index of a piece that is worth a copy, or None."""
        return self._places.get(piece)

    def tail(self, count: int) -> bytes:
        """Return the last `count` bytes."""
        taken: list[bytes] = []
        for piece in reversed(self.pieces):
            if count <= 0:
                break
            taken.append(piece[-count:])
            count -= len(piece)
        return b"".join(reversed(taken))

    def overlap(self, pieces: Sequence[bytes]) -> int:
        """Return how many bytes of `pieces` are whole pieces of this body."""
        return sum(len(piece) for piece in pieces if piece in self._places)


@dataclass(frozen=True)
class Delta:
    """A body as `parts` and the new bytes. `copied` is the number of bytes that are copies."""

    parts: list[int]
    new: list[bytes]
    copied: int


class _Parts:
    """Collects the parts of a body, and joins those that follow on each other."""

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

    def delta(self) -> Delta:
        return Delta(self.parts + ([self._count, 0, 0] if self._count else []), self.new, self.copied)


def difference(base: KnownBody, pieces: Sequence[bytes]) -> Delta:
    """Return the body of `pieces` as a delta to `base`.

    Pieces that the base has are copied, wherever they stand there. Of any other piece, the start and the end are copied
    that it shares with the piece that comes next in the base: a cache mark has moved, or a block was added."""
    made = _Parts()
    near = 0  # the index of the piece that comes next in the base
    for piece in pieces:
        old = base.pieces[near] if near < len(base.pieces) else b""
        goes_on = piece == old != b"" and (made.end == base.starts[near] or len(piece) >= MIN_COPY)
        found = near if goes_on else base.place(piece)
        if found is not None:
            made.copy(base.starts[found], len(piece))
            near = found + 1
            continue
        start = _worth(_common_start(old, piece))
        shorter = min(len(old), len(piece)) - start
        end = _worth(_common_start(old[len(old) - shorter :][::-1], piece[len(piece) - shorter :][::-1]))
        if start:
            made.copy(base.starts[near], start)
        made.add(piece[start : len(piece) - end])
        if end:
            made.copy(base.starts[near] + len(old) - end, end)
        near += 1
    return made.delta()


def _worth(count: int) -> int:
    return count if count >= MIN_COPY else 0


def _common_start(one: bytes, other: bytes) -> int:
    """Return how many bytes two texts begin with together."""
    same, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - same > 1:  # one[:same] is common, one[:high] is not
        middle = (same + high) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            high = middle
    return same
