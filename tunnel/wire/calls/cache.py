"""The request bodies that one end keeps, by their SHA-256. Both ends use the same rule, so they keep the same ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

MAX_BODIES = 32
"""Bodies that are kept: those of the main agent and its sub-agents, and earlier ones that a fork may start from."""

MAX_KEPT = 64 * 1024 * 1024
"""Bytes of all bodies that are kept. Beyond it the body that was used longest ago goes."""

T = TypeVar("T")


class BodyCache(Generic[T]):
    """Keeps a value for each body. A body that has grown into a newer one is the first to go."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, T]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def newest_first(self) -> Iterator[tuple[str, T]]:
        """Yield the digest and the value of each body, the one used last first."""
        return ((digest, value) for digest, (_, value) in reversed(self._kept.items()))

    def get(self, digest: str) -> T | None:
        """Return the value of a body, None if it is not kept."""
        found = self._kept.get(digest)
        return None if found is None else found[1]

    def put(self, digest: str, size: int, value: T) -> None:
        """Keep a body as the one used last. A body that is too large for the cache is not kept."""
        self.drop(digest)
        if size > MAX_KEPT:
            return
        self._kept[digest] = (size, value)
        self._size += size
        while len(self._kept) > MAX_BODIES or self._size > MAX_KEPT:
            self.drop(next(iter(self._kept)))

    def was_copied(self, digest: str, count: int) -> None:
        """Note that a newer body has `count` bytes of this one. If they are nearly all, the newer one replaces it;
        otherwise another conversation only begins alike."""
        found = self._kept.get(digest)
        if found is not None:
            self._kept.move_to_end(digest, last=count < found[0] * 7 // 8)

    def drop(self, digest: str) -> None:
        """Forget a body."""
        found = self._kept.pop(digest, None)
        if found is not None:
            self._size -= found[0]
