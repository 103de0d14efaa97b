"""What a connection has received and not read yet, in place of the bytes that asyncssh keeps it in.

asyncssh takes each packet off by slicing, twice. With bytes each slice copies all that is behind it, which is half of
all copying in a large download. Here a slice up to the end only moves the beginning, and a large part is not copied.
"""

from __future__ import annotations

from collections import deque

_LARGE = 1024
"""Bytes from which on a part is handed out as a view. asyncssh only joins or decrypts such a part; smaller ones, such
as a MAC, it gives to functions that take bytes alone."""


class InputBuffer:
    """Does what asyncssh does with its buffer: append, measure, find, copy the first bytes, and drop them."""

    def __init__(self, data: bytes = b"") -> None:
        self._chunks = deque([data] if data else ())
        self._at = 0  # where the rest of the first chunk begins
        self._size = len(data)

    def __len__(self) -> int:
        return self._size

    def __iadd__(self, data: bytes) -> InputBuffer:
        if data:
            self._chunks.append(data)
            self._size += len(data)
        return self

    def __getitem__(self, part: slice) -> bytes | memoryview | InputBuffer:
        """Return the bytes from one place to another. Without an end, drop those before the place."""
        start, stop, _ = part.indices(self._size)
        if part.stop is None:
            self._drop(start)
            return self
        if start >= stop:
            return b""
        if self._at + stop <= len(self._chunks[0]):
            start, stop, data = self._at + start, self._at + stop, self._chunks[0]
        else:
            data = self._joined(start, stop)
            start, stop = 0, len(data)
        return memoryview(data)[start:stop] if stop - start >= _LARGE else data[start:stop]

    def find(self, wanted: bytes, start: int, stop: int) -> int:
        """Return where the bytes `wanted` are between two places, -1 if they are not there."""
        return self._joined(0, self._size).find(wanted, start, stop)

    def _drop(self, size: int) -> None:
        self._size -= size
        self._at += size
        while self._chunks and self._at >= len(self._chunks[0]):
            self._at -= len(self._chunks.popleft())

    def _joined(self, start: int, stop: int) -> bytes:
        """Return a copy of the bytes from one place to another, which may be in several chunks."""
        parts, at = [], -self._at
        for chunk in self._chunks:
            if at >= stop:
                break
            if at + len(chunk) > start:
                parts.append(memoryview(chunk)[max(0, start - at, -at) : stop - at])
            at += len(chunk)
        return b"".join(parts)
