"""One connection of an HTTP client: requests are read by aiohttp's strict parser, answers are written here.

aiohttp's own server would make two tasks, a request, a response and their headers for each call, which took as long as
all the rest of the auth proxy.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus

from aiohttp import ClientError, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser, HttpVersion11, RawRequestMessage, StreamWriter

from ...wire.dataclass import dataclass
from ..guards.refusal import Refusal
from ..providers.request_body import WholeBody
from ..upload import BodyLost

log = logging.getLogger(__name__)

_READ_AHEAD = 64 * 1024
"""Bytes of a request body that are kept before its client has to wait."""

_MAX_EARLY = 64 * 1024
"""Bytes of the next request that are kept while one is answered."""

_MAX_LINE, _MAX_HEADERS = 8190, 128
_LINGER_S = 10.0
"""Seconds for which the rest of a body is thrown away that was answered before it had come: else its client, which
still sends, would not see the answer."""

_JOINED = 8 * 1024
"""Bytes up to which a piece of an answer is copied to be sent in one go with its frame."""

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True)
class HttpRequest:
    """A request as it came. `path` is the raw target, `size` the length of the body, None if it is not known yet."""

    method: str
    path: str
    headers: Mapping[str, str]
    size: int | None
    body: AsyncIterator[bytes]


Serve = Callable[[HttpRequest, "HttpAnswer"], Awaitable[None]]


class HttpConnection(BaseProtocol):
    """Answers the requests of one client, one after the other. `serve` answers one; it is cancelled if the client
    leaves. `open_ones` are the connections that are open; beyond `most` of them a new one gets no answer."""

    def __init__(self, serve: Serve, open_ones: set[HttpConnection], most: int) -> None:
        loop = asyncio.get_running_loop()
        parser = HttpRequestParser(
            self,
            loop,
            _READ_AHEAD,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_LINE,
            max_headers=_MAX_HEADERS,
            payload_exception=BodyLost,
            auto_decompress=False,
            max_msg_queue_size=1,
        )
        super().__init__(loop, parser)
        self._requests = parser
        self._serve = serve
        self._open_ones = open_ones
        self._most = most
        self._task: asyncio.Task[None] | None = None
        self._body: StreamReader | None = None
        self._early = b""
        self._last = False  # no request is read any more

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._open_ones) >= self._most:
            self.break_off()
        self._open_ones.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open_ones.discard(self)
        self._last = True
        if self._body is not None:
            self._body.set_exception(exc or ConnectionResetError("the client has left"))
        if self._task is not None:
            self._task.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._last:
            return
        if self._task is None or self._body is None or not self._body.is_eof():
            self._read(data)
        elif len(self._early) + len(data) <= _MAX_EARLY:
            self._early += data
        else:
            self._last = True

    def break_off(self) -> None:
        """End the connection so that nobody takes what has come for a whole answer."""
        self._last = True
        if self.transport is not None:
            self.transport.abort()

    async def close(self) -> None:
        """Break off, and wait for the end of what answers a request."""
        self.break_off()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _read(self, data: bytes) -> None:
        try:
            messages, upgraded, _ = self._requests.feed_data(data)
        except HttpProcessingError as error:
            self._last = True
            if self._task is None:
                self._refuse(Refusal(400, f"the request is not HTTP: {_CONTROL.sub(' ', error.message)[:200]}"))
            return
        self._last = self._last or upgraded  # what follows would be another protocol
        for message, body in messages:
            self._requests.message_consumed()
            self._body = body
            self._task = self._loop.create_task(self._answer(message, body), name="answer an HTTP client")
            self._task.add_done_callback(self._answered)

    async def _answer(self, message: RawRequestMessage, body: StreamReader) -> None:
        if self.transport is None:
            return
        answer = HttpAnswer(self, self.transport, message, body)
        request, expected = _request(message, body), message.headers.get("expect")
        if expected is not None and message.version == HttpVersion11:
            if expected.lower() != "100-continue":
                self._last = True
                self._refuse(Refusal(417, "this expectation cannot be met"))
                return
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await self._serve(request, answer)
        self._last = self._last or answer.closes

    def _answered(self, task: asyncio.Task[None]) -> None:
        """Go on with the next request, or end the connection."""
        whole = self._body is None or self._body.is_eof()
        self._task = self._body = None
        failure = None if task.cancelled() else task.exception()
        if self.transport is None:
            return
        if failure is not None:
            log.error("the HTTP front failed on a request", exc_info=failure)
        if failure is not None or task.cancelled():
            self.break_off()
        elif not whole:
            self._linger(self.transport)
        elif self._last:
            self.transport.close()
        else:
            early, self._early = self._early, b""
            self._read(early)

    def _linger(self, transport: asyncio.Transport) -> None:
        self._last = True
        transport.write_eof()
        transport.resume_reading()
        self._loop.call_later(_LINGER_S, transport.close)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer with an error, and end the connection."""
        if self.transport is not None:
            body = refusal.body()
            headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            self.transport.write(_head(refusal.status, headers) + body)
            self.transport.close()


class HttpAnswer:
    """Writes the answer to one request. The head goes with the first bytes of the body, or with `flush`."""

    def __init__(
        self, connection: HttpConnection, transport: asyncio.Transport, message: RawRequestMessage, body: StreamReader
    ) -> None:
        self._body = body
        self._connection = connection
        self._transport = transport
        self._writer = StreamWriter(connection, asyncio.get_running_loop())
        self._new = message.version >= HttpVersion11
        self._without_body = message.method == "HEAD"
        self._chunked = False
        self._head = b""
        self.closes = message.should_close or not self._new

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head."""
        self._without_body = self._without_body or status in (204, 304)
        self.closes = self.closes or not self._body.is_eof()  # what is still to come would be read as a request
        framing: dict[str, str] = {}
        if "content-length" not in headers and not self._without_body:
            self._chunked = self._new
            framing = {"transfer-encoding": "chunked"} if self._new else {}
            self.closes = self.closes or not self._new
        if self.closes:
            framing["connection"] = "close"
        self._head = _head(status, {**headers, **framing})

    def flush(self) -> None:
        """Send the head, if it has not gone."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body. Wait while the client reads too slowly."""
        if self._without_body or not piece:
            return
        head, self._head = self._head, b""
        if not self._chunked:
            self._transport.write(head + piece if head else piece)
        elif len(piece) <= _JOINED:
            self._transport.write(b"%b%x\r\n%b\r\n" % (head, len(piece), piece))
        else:
            self._transport.writelines((b"%b%x\r\n" % (head, len(piece)), piece, b"\r\n"))
        if self._connection.writing_paused:
            await self._writer.drain()

    def finish(self) -> None:
        """End the body."""
        if self._chunked:
            head, self._head = self._head, b""
            self._transport.write(head + b"0\r\n\r\n")
        self.flush()

    def break_off(self) -> None:
        """End the connection so that nobody takes what has come for a whole answer."""
        self._connection.break_off()


def _request(message: RawRequestMessage, body: StreamReader) -> HttpRequest:
    headers = message.headers
    if body.is_eof():
        whole = body.read_nowait()
        return HttpRequest(message.method, message.path, headers, len(whole), WholeBody([whole] if whole else []))
    size = None if message.chunked else int(message.headers["content-length"])
    return HttpRequest(message.method, message.path, headers, size, _pieces(body))


async def _pieces(body: StreamReader) -> AsyncIterator[bytes]:
    try:
        while piece := await body.readany():
            yield piece
    except (ClientError, ConnectionError) as error:
        raise BodyLost from error


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    """Return the head of an answer. A header whose value is more than that is left out."""
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = ""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items() if not _CONTROL.search(value)]
    return f"HTTP/1.1 {status} {reason}\r\n{''.join(lines)}\r\n".encode("utf-8", "surrogateescape")
