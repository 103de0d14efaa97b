"""The last of what a command wrote to stderr: the evidence in an error message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

LIMIT = 8 * 1024


class StderrTail:
    """Keeps the last LIMIT bytes."""

    def __init__(self) -> None:
        self._data = b""

    async def drain(self, read: Callable[[int], Awaitable[bytes]]) -> None:
        """Read to the end; run it as a task of the pipe that owns stderr."""
        while data := await read(4096):
            self.feed(data)

    def feed(self, data: bytes) -> None:
        self._data = (self._data + data)[-LIMIT:]

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")
