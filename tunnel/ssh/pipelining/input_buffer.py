"""What a connection has received and not read yet, in place of the bytes that asyncssh keeps it in.

asyncssh takes each packet off by slicing, twice. With bytes each slice copies all that is behind it, which is half of
all copying in a large download. Here a slice up to the end only moves the beginning.
"""

from __future__ import annotations


class InputBuffer:
    """Does what asyncssh does with its buffer: append, measure, find, copy the first bytes, and drop them."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = data
        self._at = 0

    def __len__(self) -> int:
        return len(self._data) - self._at

    def __iadd__(self, data: bytes) -> InputBuffer:
        self._data = self._data[self._at :] + data
        self._at = 0
        return self

    def __getitem__(self, part: slice) -> bytes | InputBuffer:
        """Return a copy of the bytes from one place to another. Without an end, drop those before the place."""
        start, stop, _ = part.indices(len(self))
        if part.stop is None:
            self._at += start
            return self
        return self._data[self._at + start : self._at + stop]

    def find(self, wanted: bytes, start: int, stop: int) -> int:
        """Return where the bytes `wanted` are between two places, -1 if they are not there."""
        place = self._data.find(wanted, self._at + start, self._at + stop)
        return place if place < 0 else place - self._at
