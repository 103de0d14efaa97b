"""One request as it comes from an HTTP client: its head, and the body as far as it has come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping

from ..providers.request_body import WholeBody
from ..upload import BodyLost

_READ_AHEAD = 64 * 1024
"""Bytes of a body that are kept before its client has to wait."""


class HttpRequest:
    """`path` is the raw target, `closes` says whether the connection ends with the answer, `old` that the client speaks
    HTTP/1.0. `headers` have names in lower case."""

    def __init__(
        self,
        transport: asyncio.Transport,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        closes: bool,
        old: bool,
    ) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.closes = closes
        self.old = old
        self.complete = False
        """Whether all of the body has come."""

        self._transport = transport
        self._pieces: deque[bytes] = deque()
        self._waiting = 0  # bytes of the pieces
        self._lost = False
        self._news: asyncio.Future[None] | None = None

    @property
    def size(self) -> int | None:
        """The length of the body, None if it is not known yet."""
        if self.complete:
            return self._waiting
        if "transfer-encoding" in self.headers:
            return None
        return int(self.headers.get("content-length", 0))

    def body(self) -> AsyncIterator[bytes]:
        """Return the body. It can be read once, and raises BodyLost if its client breaks off."""
        if self.complete:
            pieces, self._pieces = [*self._pieces], deque()
            return WholeBody(pieces)
        return self._arriving()

    def arrived(self, piece: bytes) -> None:
        """Note the next bytes of the body."""
        self._pieces.append(piece)
        self._waiting += len(piece)
        if self._waiting > _READ_AHEAD:
            self._transport.pause_reading()
        if self._news is not None:
            self._wake(self._news)

    def ended(self) -> None:
        """Note the end of the body."""
        self.complete = True
        if self._waiting > _READ_AHEAD:  # whoever takes a whole body at once makes no room
            self._transport.resume_reading()
        if self._news is not None:
            self._wake(self._news)

    def lost(self) -> None:
        """Note that the rest of the body does not come."""
        self._lost = True
        if self._news is not None:
            self._wake(self._news)

    async def _arriving(self) -> AsyncIterator[bytes]:
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._waiting -= len(piece)
                if self._waiting <= _READ_AHEAD:
                    self._transport.resume_reading()
                yield piece
            if self.complete:
                return
            if self._lost:
                raise BodyLost
            self._news = asyncio.get_running_loop().create_future()
            await self._news

    def _wake(self, news: asyncio.Future[None]) -> None:
        self._news = None
        if not news.done():
            news.set_result(None)
