"""One connection of an HTTP client: requests are read by aiohttp's strict parser, answers are written here.

aiohttp's own server makes two tasks, a request, a response and their headers for each call. Here there is no task at
all: what a provider sends is written in the step of the loop in which it arrives.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Protocol

from aiohttp import ClientError, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser, HttpVersion11, RawRequestMessage

from ...wire.dataclass import dataclass
from ..guards.refusal import Refusal
from ..providers.request_body import WholeBody
from ..upload import BodyLost

_READ_AHEAD = 64 * 1024
"""Bytes of a request body that are kept before its client has to wait."""

_MAX_EARLY = 64 * 1024
"""Bytes of the next request that are kept while one is answered."""

_MAX_LINE, _MAX_HEADERS = 8190, 128
_MAX_HEAD = 64 * 1024
"""Bytes without a whole head after which a connection is refused: nothing has said yet that it knows the nonce."""

_IDLE_S = 75.0
"""Seconds from one request to the next until a connection is closed, however much of the next head has come by then:
who sends one byte a minute would else hold a place for ever."""

_LINGER_S = 10.0
"""Seconds for which the rest of a request is thrown away that was answered before it had come: else its client, which
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


class Answering(Protocol):
    """What answers one request."""

    def go_on(self) -> None:
        """Write what there is: the client can take more, or there is news."""

    def give_up(self) -> None:
        """Write no more: the client has left."""


class HttpConnection(BaseProtocol):
    """Answers the requests of one client, one after the other. `serve` begins to answer one. `open_ones` are the
    connections that are open; beyond `most` of them a new one gets no answer."""

    def __init__(
        self, serve: Callable[[HttpRequest, HttpAnswer], Answering], open_ones: set[HttpConnection], most: int
    ) -> None:
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
        self._answering: Answering | None = None
        self._answer: HttpAnswer | None = None
        self._early = b""
        self._headless = 0  # bytes that have come of the head of the next request
        self._last = False  # no request is read any more
        self._ends_at: float | None = None  # unless a request begins

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._open_ones) >= self._most:
            self.break_off()
        self._open_ones.add(self)
        self._ends_at = self._loop.time() + _IDLE_S

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open_ones.discard(self)
        self._last = True
        if self._answer is not None:
            self._answer.body.set_exception(exc or ConnectionResetError("the client has left"))
        if self._answering is not None:
            self._answering.give_up()
        self._answering = self._answer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._last:
            return
        if self._answer is None or not self._answer.body.is_eof():
            self._read(data)
        elif len(self._early) + len(data) <= _MAX_EARLY:
            self._early += data
        else:
            self._last = True

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answering is not None:
            self._answering.go_on()

    def break_off(self) -> None:
        """End the connection so that nobody takes what has come for a whole answer."""
        self._last = True
        if self.transport is not None:
            self.transport.abort()

    def close_idle(self, now: float) -> None:
        """End the connection if it has waited too long for a request, or for the rest of one. What its client does not
        read is thrown away the next time."""
        if self._ends_at is None or now < self._ends_at or self.transport is None:
            return
        self._last = True
        if self.transport.is_closing():
            self.transport.abort()
        else:
            self.transport.close()

    def answered(self) -> None:
        """Go on with the next request, or end the connection."""
        answer = self._answer
        self._answering = self._answer = None
        self._ends_at = self._loop.time() + _IDLE_S
        if self.transport is None or answer is None:
            return
        if not answer.body.is_eof():
            self._linger(self.transport)
        elif self._last or answer.closes:
            self._last = True
            self.transport.close()
        else:
            early, self._early = self._early, b""
            self._read(early)

    def _read(self, data: bytes) -> None:
        try:
            messages, upgraded, _ = self._requests.feed_data(data)
        except HttpProcessingError as error:
            self._last = True
            if self._answer is None:
                self._refuse(Refusal(400, f"the request is not HTTP: {_CONTROL.sub(' ', error.message)[:200]}"))
            return
        self._last = self._last or upgraded  # what follows would be another protocol
        for message, body in messages:
            self._requests.message_consumed()
            self._headless = 0
            self._begin(message, body)
        if self._answer is None and not self._last:
            self._headless += len(data)
            if self._headless > _MAX_HEAD:
                self._last = True
                self._refuse(Refusal(431, f"the head of the request is over the limit of {_MAX_HEAD} bytes"))

    def _begin(self, message: RawRequestMessage, body: StreamReader) -> None:
        if self.transport is None:
            return
        if message.method == "CONNECT":  # for the parser all that follows is its body
            self._last = True
            self._refuse(Refusal(405, "the proxy opens no tunnel"))
            return
        expected = message.headers.get("expect")
        if expected is not None and message.version == HttpVersion11:
            if expected.lower() != "100-continue":
                self._last = True
                self._refuse(Refusal(417, "this expectation cannot be met"))
                return
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._ends_at = None
        self._answer = HttpAnswer(self, self.transport, message, body)
        self._answering = self._serve(_request(message, body), self._answer)
        self._answering.go_on()

    def _linger(self, transport: asyncio.Transport) -> None:
        self._last = True
        transport.write_eof()
        transport.resume_reading()
        self._ends_at = self._loop.time() + _LINGER_S

    def _refuse(self, refusal: Refusal) -> None:
        """Answer with an error, and end the connection."""
        if self.transport is not None:
            body = refusal.body()
            headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            self.transport.write(_head(refusal.status, headers) + body)
            self._linger(self.transport)


class HttpAnswer:
    """Writes the answer to one request whose body is `body`. The head goes with the first bytes of the answer, if they
    come in the same step of the loop."""

    def __init__(
        self, connection: HttpConnection, transport: asyncio.Transport, message: RawRequestMessage, body: StreamReader
    ) -> None:
        self.body = body
        self._connection = connection
        self._transport = transport
        self._new = message.version >= HttpVersion11
        self._without_body = message.method == "HEAD"
        self._chunked = False
        self._head = b""
        self.closes = message.should_close or not self._new

    @property
    def paused(self) -> bool:
        """Whether the client reads too slowly."""
        return self._connection.writing_paused

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head."""
        self._without_body = self._without_body or status in (204, 304)
        self.closes = self.closes or not self.body.is_eof()  # what is still to come would be read as a request
        framing: dict[str, str] = {}
        if "content-length" not in headers and not self._without_body:
            self._chunked = self._new
            framing = {"transfer-encoding": "chunked"} if self._new else {}
            self.closes = self.closes or not self._new
        if self.closes:
            framing["connection"] = "close"
        self._head = _head(status, {**headers, **framing})
        asyncio.get_running_loop().call_soon(self._flush)

    def write(self, piece: bytes) -> None:
        """Send a piece of the body."""
        if self._without_body or not piece:
            return
        head, self._head = self._head, b""
        if not self._chunked:
            self._transport.write(head + piece if head else piece)
        elif len(piece) <= _JOINED:
            self._transport.write(b"%b%x\r\n%b\r\n" % (head, len(piece), piece))
        else:
            self._transport.writelines((b"%b%x\r\n" % (head, len(piece)), piece, b"\r\n"))

    def finish(self) -> None:
        """End the body."""
        head, self._head = self._head, b""
        if self._chunked or head:
            self._transport.write(head + b"0\r\n\r\n" if self._chunked else head)
        asyncio.get_running_loop().call_soon(self._connection.answered)

    def break_off(self) -> None:
        """End the connection so that nobody takes what has come for a whole answer."""
        self._connection.break_off()

    def _flush(self) -> None:
        """Send the head, if it has not gone."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


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
