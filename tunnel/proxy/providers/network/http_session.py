"""HTTP to a provider over connections of aiohttp, which takes 70 to 120 ms to load. `http_client` loads this module.

aiohttp opens the connections and keeps them. The requests are written here: what its `ClientSession`
can do beside that (cookies, redirects, authentication, compression, one task for each body) is not wanted, and took two
thirds of the time that a request waited before it went out.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Self

import aiohttp
from aiohttp import hdrs
from aiohttp.connector import Connection
from aiohttp.http import StreamWriter
from multidict import CIMultiDict
from yarl import URL

from ..provider import ProviderError, ProviderRequest, ProviderResponse
from ..request_body import WholeBody
from .answer_protocol import AnswerProtocol
from .endpoint import Endpoint

CONNECT_TIMEOUT = 30.0
"""Seconds for the TCP and TLS handshakes."""

READ_TIMEOUT = 3600.0
"""Seconds without a byte after which a call is given up. How long a model may say nothing is the worker's decision
(`remote/model/retry.py`); this is for calls whose worker does not come back."""

_AT_ONCE = 64 * 1024
"""Bytes of a body up to which it goes with the head of its request, in one piece."""

_TARGET = re.compile(r"[!-~]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BROKEN = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


def _proxy_authorization(proxy: URL | None) -> dict[str, str]:
    if proxy is None or not proxy.user:
        return {}
    pair = f"{proxy.user}:{proxy.password or ''}".encode()
    return {"proxy-authorization": "Basic " + base64.b64encode(pair).decode("ascii")}


class _Silence:
    """Breaks answers off after READ_TIMEOUT seconds in which somebody waited for one and nothing came of it.

    One timer looks at all answers of a session. aiohttp sets a new one whenever bytes arrive, which is a tenth of what
    an event costs.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched: set[AnswerProtocol] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, answer: AnswerProtocol) -> None:
        """Watch an answer from now on."""
        self._watched.add(answer)
        if self._timer is None:
            self._timer = self._loop.call_later(READ_TIMEOUT, self._look)

    def end(self, answer: AnswerProtocol) -> None:
        """Watch it no more."""
        self._watched.discard(answer)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = first = time.monotonic()
        for answer in list(self._watched):
            since = answer.silent_since
            if since is not None and now - since >= READ_TIMEOUT:
                answer.fail(TimeoutError())
            elif since is not None:
                first = min(first, since)
        self._timer = self._loop.call_later(first + READ_TIMEOUT - now, self._look) if self._watched else None


class _Exchange:
    """One request and its answer on a connection.

    The request is written at once if its body is there and small, else beside the wait for the answer: a provider may
    refuse a body before it has all of it.
    """

    def __init__(self, connection: Connection, head: bytes, request: ProviderRequest) -> None:
        self.answer = answer = AnswerProtocol(connection, request.answered)
        self._sending: asyncio.Task[None] | None = None
        body = request.body
        if request.method == "GET":
            answer.send(head)
        elif isinstance(body, WholeBody) and request.size is not None and request.size <= _AT_ONCE:
            answer.send(head + body.take())
        else:
            sending = self._send(head, body, chunked=request.size is None)
            self._sending = asyncio.create_task(sending, name="send a request")
            self._sending.add_done_callback(self._sent)

    async def close(self) -> None:
        """Keep the connection for another request, unless something of this one is still to come or to be sent."""
        if self._sending is not None and not self._sending.done():
            self._sending.cancel()
            self.answer.fail(ConnectionAbortedError())
            try:
                await asyncio.wait((self._sending,))
            finally:
                self.answer.leave()
        else:
            self.answer.leave()

    async def _send(self, head: bytes, body: AsyncIterator[bytes], *, chunked: bool) -> None:
        """Write the body, and the head with its first piece: a body that is refused sends nothing."""
        answer = self.answer
        writer = StreamWriter(answer, asyncio.get_running_loop())
        async for piece in body:
            if piece:
                answer.send(b"%b%x\r\n%b\r\n" % (head, len(piece), piece) if chunked else head + piece)
                head = b""
                await writer.drain()
        if head or chunked:
            answer.send(head + b"0\r\n\r\n" if chunked else head)

    def _sent(self, sending: asyncio.Task[None]) -> None:
        """End the call with what has ended its body."""
        error = None if sending.cancelled() else sending.exception()
        if error is not None:
            self.answer.fail(error)


class _Requested(AbstractAsyncContextManager[ProviderResponse]):
    """One request to a provider: the context of its answer, and the pieces of its body."""

    def __init__(self, session: HttpSession, request: ProviderRequest) -> None:
        self._session = session
        self._request = request
        self._exchange: _Exchange | None = None

    async def __aenter__(self) -> ProviderResponse:
        try:
            self._exchange = exchange = await self._session.answered(self._request)
        except _BROKEN as error:
            raise self._session.error(error) from None
        answer = exchange.answer
        if 300 <= answer.status < 400:
            await self._session.leave(exchange)
            host, variable = self._session.endpoint.host, self._session.endpoint.variable
            raise ProviderError(f"{host} answers with a redirect; check {variable}", permanent=True)
        return ProviderResponse(answer.status, answer.headers, self, self._flow)

    async def __aexit__(self, *_: object) -> None:
        if self._exchange is not None:
            await self._session.leave(self._exchange)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        assert self._exchange is not None
        try:
            chunk = await self._exchange.answer.chunk()
        except _BROKEN as error:
            raise self._session.error(error) from None
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def _flow(self, take: Callable[[bytes], bool]) -> bool:
        assert self._exchange is not None
        try:
            return await self._exchange.answer.flow(take)
        except _BROKEN as error:
            raise self._session.error(error) from None


class HttpSession:
    """Sends requests to one endpoint over pooled connections. Follows no redirects, since the credential would follow
    them, and keeps no cookies. `tls` is the context for certificates; without one, no certificate is trusted."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> None:
        self.endpoint = endpoint
        self._tls: ssl.SSLContext | bool = tls or True
        self._last: tuple[str, str] | None = None
        self._silence = _Silence()
        self._proxy_headers = _proxy_authorization(endpoint.proxy)
        self._connector = aiohttp.TCPConnector(limit=128, ssl=self._tls, keepalive_timeout=30)
        self._timeout = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=CONNECT_TIMEOUT)
        self._direct = self._destination() if endpoint.proxy is None else None
        self._host = (self._direct or self._destination()).headers[hdrs.HOST]

    async def close(self) -> None:
        """Close the connections."""
        self._silence.close()
        await self._connector.close()

    def request(self, request: ProviderRequest) -> _Requested:
        """See `ProviderClient.request`."""
        return _Requested(self, request)

    async def answered(self, request: ProviderRequest) -> _Exchange:
        """Send a request and wait for the head of its answer. One that has no effect is sent again if its connection
        was used before: the provider may have closed it meanwhile."""
        head, again = self._head(request), request.method == "GET"
        while True:
            connection = await self._connector.connect(self._direct or self._destination(), [], self._timeout)
            if connection.protocol is not None and connection.protocol.should_close:  # something came unasked
                connection.close()
                connection = await self._connector.connect(self._direct or self._destination(), [], self._timeout)
            try:
                exchange = _Exchange(connection, head, request)
            except BaseException:
                connection.close()
                raise
            self._silence.begin(exchange.answer)
            try:
                await exchange.answer.head()
            except BaseException as error:
                await self.leave(exchange)
                if not (again and isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError))):
                    raise
                again = False
            else:
                return exchange

    async def leave(self, exchange: _Exchange) -> None:
        """End an exchange, whatever is still to come of it."""
        self._silence.end(exchange.answer)
        await exchange.close()

    def _destination(self) -> aiohttp.ClientRequest:
        """Return what tells the connector where to connect to. It is changed on the way through an HTTP proxy, so each
        connection there needs another."""
        proxy = self.endpoint.proxy
        return aiohttp.ClientRequest(
            "POST",
            self.endpoint.base,
            loop=asyncio.get_running_loop(),
            ssl=self._tls,
            proxy=proxy.with_user(None) if proxy is not None else None,
            proxy_headers=CIMultiDict(self._proxy_headers) if self._proxy_headers else None,
        )

    def _head(self, request: ProviderRequest) -> bytes:
        """Return the head of a request. Raise ValueError for one that would be more than that."""
        lines = {"host": self._host, **request.headers}
        if request.method != "GET":
            lines |= {"transfer-encoding": "chunked"} if request.size is None else {"content-length": str(request.size)}
        target = self._target(request.path)
        if self.endpoint.proxy is not None and self.endpoint.base.scheme == "http":
            lines |= self._proxy_headers
        values = "".join(lines.values())
        if not values.isprintable() and _CONTROL.search(values):
            raise ValueError("a header of the request cannot be sent")
        text = "".join([f"{name}: {value}\r\n" for name, value in lines.items()])
        return f"{request.method} {target} HTTP/1.1\r\n{text}\r\n".encode()

    def _target(self, path: str) -> str:
        """Return the target in a request line. The last one is remembered: nearly all calls have the same. Raise
        ValueError."""
        if self._last is None or self._last[0] != path:
            url = self.endpoint.url(path)
            through_proxy = self.endpoint.proxy is not None and url.scheme == "http"
            target = str(url) if through_proxy else url.raw_path_qs
            if not _TARGET.fullmatch(target):
                raise ValueError("the path of the request cannot be sent")
            self._last = (path, target)
        return self._last[1]

    def error(self, error: Exception) -> ProviderError:
        """Say in one sentence which host failed and why, without any part of the request."""
        host = self.endpoint.host
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            cause = str(error.certificate_error)
            hint = "if a proxy with its own CA is in between, name that CA in SSL_CERT_FILE"
            return ProviderError(f"the TLS certificate of {host} was refused: {cause}; {hint}", permanent=True)
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return ProviderError(
                f"the proxy on the way to {host} answered {error.status}", permanent=error.status == 407
            )
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return ProviderError(f"the proxy on the way to {host} does not answer")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return ProviderError(f"the name {host} does not resolve")
        if isinstance(error, aiohttp.ClientConnectorSSLError):
            return ProviderError(f"no TLS with {host}: {error.os_error}", permanent=True)
        if isinstance(error, aiohttp.ClientConnectorError):
            failed = error.os_error  # str(failed) says only "Connect call failed" and an address
            return ProviderError(
                f"{error.host} does not answer: {os.strerror(failed.errno) if failed.errno else failed}"
            )
        if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
            return ProviderError(f"{host} did not answer in time")
        return ProviderError(f"the connection to {host} broke ({type(error).__name__})")
