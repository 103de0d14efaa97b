"""The last of what a command wrote to stderr: the evidence in an error message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from .plain_text import neutralise

LIMIT = 8 * 1024
_MOST_LINE = 2000

Notice = Callable[[str], None]
"""Shows the person what a command says on stderr; neutralised already."""


class StderrTail:
    """Keeps the last LIMIT bytes."""

    def __init__(self) -> None:
        self._data = b""

    async def drain(self, read: Callable[[int], Awaitable[bytes]], notice: Notice | None = None) -> None:
        """Read to the end; run it as a task of the pipe that owns stderr. Every line is given to `notice`."""
        line = ""
        while data := await read(4096):
            self.feed(data)
            if notice is not None:
                *lines, line = (line + data.decode("utf-8", "replace")).split("\n")
                for each in lines:
                    notice(neutralise(each[:_MOST_LINE].rstrip("\r")))
                line = line[:_MOST_LINE]
        if line and notice is not None:
            notice(neutralise(line))

    def feed(self, data: bytes) -> None:
        self._data = (self._data + data)[-LIMIT:]

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")
