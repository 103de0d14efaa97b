"""What a host names, as far as there is room for it."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

MAX_ID = 200  # characters of an id. The worker's own ids are UUIDs, those of providers have less than 100.


class Newest(dict[K, V]):
    """The newest `most` entries without keys of more than MAX_ID characters, added with `[]` or `setdefault`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        if isinstance(key, str) and len(key) > MAX_ID:
            return
        super().__setitem__(key, value)
        if len(self) > self._most:
            del self[next(iter(self))]

    def setdefault(self, key: K, value: V) -> V:
        if key not in self:
            self[key] = value
        return self.get(key, value)
