"""The end of what a command wrote to stderr: the evidence for an error message."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable

from ..plain_text import neutralise

log = logging.getLogger(__name__)

LIMIT = 8 * 1024
LAST_WORDS_S = 2.0
"""Seconds to wait for the end of stderr after the command has ended."""

_MAX_LINE = 2000
_QUIET_S = 1.0
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\r?\n(?:[ \t].*\n)+", re.MULTILINE)

Notice = Callable[[str], None]
"""Shows the person a line that a command wrote to stderr. It is neutralised already."""


class StderrTail:
    """Keeps the last LIMIT bytes of stderr."""

    def __init__(self) -> None:
        self._data = b""
        self._shown = False  # whether `notice` has already received the unfinished line

    async def drain(self, read: Callable[[int], Awaitable[bytes]], notice: Notice | None = None) -> None:
        """Read stderr to its end, in a task of the pipe that owns it. Give every line to `notice`.

        A line without a newline is given to it too after a moment: it may be a question.
        """
        line = ""
        while data := await self._read(read, line, notice):
            self.feed(data)
            if notice is not None:
                if self._shown:
                    line, self._shown = "", False
                *lines, line = (line + data.decode("utf-8", "replace")).split("\n")
                for each in lines:
                    notice(neutralise(each[:_MAX_LINE].rstrip("\r")))
                line = line[:_MAX_LINE]
        if line and notice is not None and not self._shown:
            notice(neutralise(line))

    async def _read(self, read: Callable[[int], Awaitable[bytes]], line: str, notice: Notice | None) -> bytes:
        reading = asyncio.ensure_future(read(4096))
        try:
            if line and notice is not None and not self._shown:
                done, _ = await asyncio.wait({reading}, timeout=_QUIET_S)
                if not done:
                    notice(neutralise(line))
                    self._shown = True
            return await reading
        finally:
            reading.cancel()

    def feed(self, data: bytes) -> None:
        self._data = (self._data + data)[-LIMIT:]

    def text(self) -> str:
        """Return the end of stderr. Of a Python traceback only its last line is left; the log has all of it."""
        text = self._data.decode("utf-8", "replace")
        short = _TRACEBACK.sub("", text)
        if short != text:
            log.info("stderr of a command: %s", neutralise(text))
        return short
