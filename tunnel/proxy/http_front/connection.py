"""One connection of an HTTP client: httptools reads the requests, whose form is checked here.

aiohttp's server makes two tasks, a request, a response and their headers for each call. Here there is no task at all:
what a provider sends is written in the step of the loop in which it arrives.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from ..guards.refusal import Refusal
from .answer import Answering, HttpAnswer, Serve, head_of
from .request import HttpRequest

_MAX_EARLY = 64 * 1024
"""Bytes that are kept while a request is answered that has come whole."""

_MAX_NEXT = 64
"""Requests that wait for the answer to one before them. The parser reads at once all that came in one piece."""

_MAX_LINE, _MAX_HEADERS = 8190, 128
_MAX_DIGITS = 20  # of a length; Python reads no number with some thousand zeros in front
_MAX_HEAD = 64 * 1024
"""Bytes of a head, and of what comes between two pieces of a body. With more the connection is refused: nothing may
have said yet that it knows the nonce."""

_IDLE_S = 75.0
"""Seconds from one request to the next until a connection is closed, however much of the next head has come by then:
who sends one byte a minute would else hold a place for ever."""

_LINGER_S = 10.0
"""Seconds for which the rest of a request is thrown away that was answered before it had come: else its client, which
still sends, would not see the answer."""

_ONCE = frozenset(
    {"host", "content-type", "content-length", "transfer-encoding", "expect", "user-agent", "x-auth-nonce"}
)
"""Headers that may not come twice: two readers could take another one of them."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class HttpConnection(asyncio.Protocol):
    """Answers the requests of one client, one after the other. `serve` begins to answer one. `open_ones` are the
    connections that are open; beyond `most` of them a new one gets no answer. `on_…` are called by the parser."""

    def __init__(self, serve: Serve, open_ones: set[HttpConnection], most: int) -> None:
        self.writing_paused = False
        """Whether the client reads too slowly."""

        self._loop = asyncio.get_running_loop()
        self._parser = HttpRequestParser(self)
        self._serve = serve
        self._open_ones = open_ones
        self._most = most
        self._transport: asyncio.Transport | None = None
        self._target, self._headers = b"", dict[str, str]()  # of the head that comes
        self._fields = self._head_size = 0
        self._coming: HttpRequest | None = None  # the one whose body comes
        self._next: deque[HttpRequest] = deque()
        self._request: HttpRequest | None = None  # the one that is answered
        self._answering: Answering | None = None
        self._answer: HttpAnswer | None = None
        self._refusal: Refusal | None = None  # the answer to the head that has come last
        self._early = b""
        self._last = False  # no request is read any more
        self._ends_at: float | None = None  # unless a request begins

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._open_ones) >= self._most:
            self.break_off()
        self._open_ones.add(self)
        self._ends_at = self._loop.time() + _IDLE_S

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open_ones.discard(self)
        self._last = True
        self._transport = None
        if self._coming is not None:
            self._lose(self._coming)
        if self._answering is not None:
            self._answering.give_up()
        self._answering = self._answer = self._request = None

    def data_received(self, data: bytes) -> None:
        if self._last:
            return
        if self._answer is None or (self._coming is not None and self._coming is self._request):
            self._read(data)
        elif len(self._early) + len(data) <= _MAX_EARLY:
            self._early += data
        else:
            self._last = True
            if self._coming is not None:
                self._lose(self._coming)

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        if self._answering is not None:
            self._answering.go_on()

    def break_off(self) -> None:
        """End the connection so that nobody takes what has come for a whole answer."""
        self._last = True
        if self._transport is not None:
            self._transport.abort()

    def close_idle(self, now: float) -> None:
        """End the connection if it has waited too long for a request, or for the rest of one. What its client does not
        read is thrown away the next time."""
        if self._ends_at is None or now < self._ends_at or self._transport is None:
            return
        self._last = True
        if self._transport.is_closing():
            self._transport.abort()
        else:
            self._transport.close()

    def answered(self) -> None:
        """Go on with the next request, or end the connection."""
        request, answer = self._request, self._answer
        self._answering = self._answer = self._request = None
        self._ends_at = self._loop.time() + _IDLE_S
        if self._transport is None or answer is None or request is None:
            return
        if not request.complete:
            self._linger(self._transport)
        elif answer.closes:
            self._last = True
            self._transport.close()
        elif self._next:
            self._begin(self._transport, self._next.popleft())
            if self._coming is not None and self._coming is self._request:
                self._read_early()
        elif self._last:
            self._end(self._transport)
        else:
            self._read_early()

    def on_message_begin(self) -> None:
        self._target, self._headers = b"", {}
        self._fields = 0

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._coming is not None:
            self._lose(self._coming)
            self._refuse("has headers behind its body")
            return
        self._fields += 1
        if len(name) + len(value) > _MAX_LINE or self._fields > _MAX_HEADERS:
            self._refuse("has too many or too long headers")
            return
        known = name.decode("latin-1").lower()
        text = value.strip(b" \t").decode("utf-8", "surrogateescape")
        if known not in self._headers:
            self._headers[known] = text
        elif known in _ONCE:
            self._refuse(f"has the header {known} twice")
        else:
            self._headers[known] += f", {text}"  # RFC 9110, 5.3

    def on_headers_complete(self) -> None:
        self._head_size = 0
        parser, headers = self._parser, self._headers
        version = parser.get_http_version()
        if version not in ("1.0", "1.1") or ("host" not in headers and version == "1.1"):
            self._refuse("has no host, or is of another version of HTTP")
        coding = headers.get("transfer-encoding")
        if len(headers.get("content-length", "")) > _MAX_DIGITS or (
            coding is not None and (coding.lower() != "chunked" or version == "1.0")
        ):
            self._refuse("has a body in a form that the proxy does not read")
        if len(self._next) >= _MAX_NEXT:
            self._refuse("comes before too many others have been answered")
        method = parser.get_method().decode("latin-1")
        if method == "CONNECT":
            self._refusal = self._refusal or Refusal(405, "the proxy opens no tunnel")
        elif parser.should_upgrade():  # nothing would be read of its body
            self._refuse("asks for another protocol")
        expected = headers.get("expect", "100-continue").lower()
        if expected != "100-continue":
            self._refusal = self._refusal or Refusal(417, "this expectation cannot be met")
        if self._refusal is not None or self._transport is None:
            return
        closes = not parser.should_keep_alive()
        path = self._target.decode("utf-8", "surrogateescape")
        self._coming = HttpRequest(self._transport, method, path, headers, closes=closes, old=version == "1.0")
        self._next.append(self._coming)

    def on_body(self, piece: bytes) -> None:
        self._head_size = 0
        if self._coming is not None:
            self._coming.arrived(piece)

    def on_message_complete(self) -> None:
        if self._coming is not None:
            self._coming.ended()
            self._coming = None

    def _read_early(self) -> None:
        early, self._early = self._early, b""
        self._read(early)

    def _read(self, data: bytes) -> None:
        self._head_size += len(data)
        try:
            if data:
                self._parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # it is refused, and so is all that follows
        except HttpParserError as error:
            self._refuse(f"is not HTTP: {_CONTROL.sub(' ', str(error))[:200]}")
        if self._head_size > _MAX_HEAD:
            text = f"the head of the request is over the limit of {_MAX_HEAD} bytes"
            self._refusal = self._refusal or Refusal(431, text)
        if self._refusal is not None:
            self._last = True
            if self._coming is not None:
                self._lose(self._coming)
        if self._answer is None and self._transport is not None:
            if self._next:
                self._begin(self._transport, self._next.popleft())
            elif self._refusal is not None:
                self._end(self._transport)

    def _begin(self, transport: asyncio.Transport, request: HttpRequest) -> None:
        self._ends_at = None
        if "expect" in request.headers and not request.old:
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._request, self._answer = request, HttpAnswer(self, transport, request)
        self._answering = self._serve(request, self._answer)

    def _linger(self, transport: asyncio.Transport) -> None:
        self._last = True
        transport.write_eof()
        transport.resume_reading()
        self._ends_at = self._loop.time() + _LINGER_S

    def _lose(self, request: HttpRequest) -> None:
        """Give up a request whose body does not come whole. If it is not answered yet, it gets the refusal."""
        self._coming = None
        request.lost()
        if request in self._next:
            self._next.remove(request)

    def _refuse(self, why: str) -> None:
        self._refusal = self._refusal or Refusal(400, f"the request {why}")

    def _end(self, transport: asyncio.Transport) -> None:
        """End the connection, with an error if the last head was refused."""
        refusal = self._refusal
        if refusal is None:
            transport.close()
            return
        body = refusal.body()
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        transport.write(head_of(refusal.status, headers) + body)
        self._linger(transport)
