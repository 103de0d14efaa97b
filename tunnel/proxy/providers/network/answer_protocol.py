"""Reads one answer from a connection that aiohttp has opened. `http_session` writes the requests.

aiohttp's own reader wakes a task for each piece of an answer. Here a piece can be handed on in the step of the loop in
which it arrives, and httptools needs a quarter of the time to find it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import aiohttp
from aiohttp.base_protocol import BaseProtocol
from aiohttp.connector import Connection
from httptools import HttpParserError, HttpResponseParser

Answered = Callable[[int, Iterable[tuple[str, str]]], Callable[[bytes], bool]]
"""Is called with the head of an answer. See `ProviderRequest.answered`."""

_READ_AHEAD = 256 * 1024
"""Bytes of an answer that wait here before its provider has to."""

_MAX_HEAD = 256 * 1024
"""Bytes that may come without a whole head, or without another byte of the body."""


class AnswerProtocol(BaseProtocol):
    """The protocol of `connection` from its request until `leave`. Raise ServerDisconnectedError if it is closed.

    `answered` is called with the head of a successful answer in the step in which it arrives, and what that returns
    with each piece of the body that has come by then. `on_…` are called by the parser.
    """

    def __init__(self, connection: Connection, answered: Answered | None = None) -> None:
        own, transport = connection.protocol, connection.transport
        if own is None or transport is None:
            raise aiohttp.ServerDisconnectedError
        super().__init__(asyncio.get_running_loop())
        self.status = 0
        """The status of the answer, 0 until its head has come."""

        self.headers: list[tuple[str, str]] = []
        self.silent_since: float | None = None
        """Monotonic seconds since which somebody waits and nothing has come; None while nobody waits."""

        self._connection = connection
        self._own = own
        self._answered = answered
        self._answers = HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._size = 0  # of all chunks
        self._unknown = 0  # bytes that have come since the last that were of use
        self._over = False  # all of the answer has come
        self._closes = False  # the connection is not kept: what the answer says, or something came that is not of it
        self._held = False  # no more is read, there is no room
        self._failure: BaseException | None = None
        self._take: Callable[[bytes], bool] | None = None
        self._news: asyncio.Future[None] | None = None
        self.transport = transport
        transport.set_protocol(self)

    def send(self, data: bytes) -> None:
        """Write bytes of the request. Raise ClientOSError if the connection is closed."""
        if self.transport is None or self.transport.is_closing():
            raise aiohttp.ClientConnectionResetError("the connection is closed")
        self.transport.write(data)

    async def head(self) -> None:
        """Wait for the head of the answer."""
        while not self.status:
            await self._wait()

    async def chunk(self) -> bytes:
        """Wait for the next bytes of the body; b"" at its end."""
        while not (chunk := self._read()) and not self._over:
            await self._wait()
        self._go_on()
        return chunk

    async def flow(self, take: Callable[[bytes], bool]) -> bool:
        """See `ProviderResponse.flow`."""
        if self._held and self._answered is not None:  # for what came with the head there was no room
            self._answered = None
            return True
        if self._take is None:
            self._go_on()
            self._take = take
            self._tell()
        while not (self._held or self._over):
            await self._wait()
        return self._held

    def fail(self, error: BaseException) -> None:
        """End the answer."""
        self._failure = self._failure or error
        self._tell()

    def leave(self) -> None:
        """Keep the connection for another request if all of the answer has come and nothing else, else close it."""
        self._take = None
        transport = self.transport
        stays = self._over and not (self._closes or self._held or self._failure or self.writing_paused)
        if transport is not None and stays:
            transport.set_protocol(self._own)
            self._connection.release()
        else:
            self._connection.close()

    def data_received(self, data: bytes) -> None:
        if self.silent_since is not None:
            self.silent_since = time.monotonic()
        known = self.status
        self._unknown += len(data)
        try:
            self._answers.feed_data(data)
            if self._unknown > _MAX_HEAD:
                raise HttpParserError(f"{self._unknown} bytes without a whole head or a part of the body")
        except HttpParserError as error:
            self._closes = True
            if not self._over:
                self._failure = self._failure or aiohttp.ClientPayloadError(f"the answer is not HTTP: {error}")
                self._end()
        if self.status != known:
            if self._answered is not None and 200 <= self.status < 300:
                self._take = self._answered(self.status, self.headers)
            self._wake()
        self._tell()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._own.connection_lost(exc)
        super().connection_lost(exc)
        if exc is not None:
            self._failure = self._failure or aiohttp.ClientOSError(*exc.args)
        elif not self.status:
            self._failure = self._failure or aiohttp.ServerDisconnectedError()
        elif self._has_length():
            self._failure = self._failure or aiohttp.ClientPayloadError("the answer is not whole")
        else:
            self._over = self._over or self._failure is None
        self._tell()

    def on_message_begin(self) -> None:
        self._closes = self._closes or self._over

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:
            self.headers.append((name.decode("latin-1"), value.decode("utf-8", "surrogateescape")))

    def on_headers_complete(self) -> None:
        status = self._answers.get_status_code()
        if status < 100 or status == 101:  # what follows would belong to no answer, or is not HTTP
            raise HttpParserError(f"the status {status}")
        if not self.status and status < 200:
            self.headers = []
        elif not self.status:
            self.status = status
            self._unknown = 0

    def on_body(self, chunk: bytes) -> None:
        if self._over:  # it is of another answer
            return
        self._chunks.append(chunk)
        self._size += len(chunk)
        self._unknown = 0

    def on_message_complete(self) -> None:
        if self.status:
            self._over = True
            self._closes = self._closes or not self._answers.should_keep_alive()

    def _has_length(self) -> bool:
        """Return whether the answer says where it ends. One that does not ends with its connection."""
        return any(name.lower() in ("content-length", "transfer-encoding") for name, _ in self.headers)

    def _read(self) -> bytes:
        """Return what has come of the body."""
        chunks = self._chunks
        if not chunks:
            return b""
        self._chunks, self._size = [], 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _wait(self) -> None:
        """Wait until something has come. Raise if nothing will."""
        if self._failure is not None:
            raise self._failure
        self.silent_since = time.monotonic()
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = self.silent_since = None

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _tell(self) -> None:
        """Hand on what has come, or let whoever waits know."""
        take = self._take
        if take is None:
            if self._size > _READ_AHEAD:
                self._hold()
            self._wake()
            return
        chunk = self._read()
        if chunk and not take(chunk):
            self._hold()
        if self._held or self._over or self._failure is not None:
            self._take = None
            self._wake()

    def _hold(self) -> None:
        """Read no more until there is room."""
        self._held = True
        if self.transport is not None:
            self.transport.pause_reading()

    def _go_on(self) -> None:
        if self._held and self.transport is not None:
            self.transport.resume_reading()
        self._held = False

    def _end(self) -> None:
        if self.transport is not None:
            self.transport.abort()
