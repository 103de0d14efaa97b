"""HTTP to a provider with aiohttp, which takes 70 to 120 ms to load. `http_client` loads this module."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from ..provider import ProviderError, ProviderRequest, ProviderResponse
from .endpoint import Endpoint

CONNECT_TIMEOUT = 30.0
"""Seconds for the TCP and TLS handshakes."""

READ_TIMEOUT = 600.0
"""Seconds of silence after which a call is given up. The worker's own watchdog is shorter."""

_AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


def _proxy_authorization(proxy: URL | None) -> dict[str, str] | None:
    if proxy is None or not proxy.user:
        return None
    pair = f"{proxy.user}:{proxy.password or ''}".encode()
    return {"proxy-authorization": "Basic " + base64.b64encode(pair).decode("ascii")}


class _Silence:
    """Breaks a body off after READ_TIMEOUT seconds in which somebody waited for it and nothing came.

    One timer goes on for the whole answer. aiohttp sets a new one whenever bytes arrive, which is a tenth of what an
    event costs.
    """

    def __init__(self, body: aiohttp.StreamReader) -> None:
        self._body = body
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._timer = self._loop.call_later(READ_TIMEOUT, self._look)

    def begin(self) -> None:
        """Note that somebody waits for bytes from now on."""
        self._since = self._loop.time()

    def end(self) -> None:
        """Note that bytes have come."""
        self._since = None

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._since is None else self._since
        if now - since < READ_TIMEOUT:
            self._timer = self._loop.call_at(since + READ_TIMEOUT, self._look)
        else:
            self._body.set_exception(TimeoutError())


class HttpSession:
    """Sends requests to one endpoint over pooled connections. Follows no redirects, since the credential would follow
    them, and keeps no cookies. `tls` is the context for certificates, None for that of the system's CAs."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> None:
        self.endpoint = endpoint
        self._last: tuple[str, URL] | None = None
        proxy = endpoint.proxy
        self._proxy = proxy.with_user(None) if proxy is not None else None
        self._proxy_headers = _proxy_authorization(proxy)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=128, ssl=tls or True, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=None, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_AUTO_HEADERS,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    @asynccontextmanager
    async def request(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        """See `ProviderClient.request`."""
        method = request.method
        framing = {"content-length": str(request.size)} if request.size is not None and method != "GET" else {}
        try:
            response = await self._session.request(
                method,
                self._url(request.path),
                headers={**request.headers, **framing},
                data=None if method == "GET" else request.body,
                allow_redirects=False,
                proxy=self._proxy,
                proxy_headers=self._proxy_headers,
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._error(error) from None
        try:
            if 300 <= response.status < 400:
                host, variable = self.endpoint.host, self.endpoint.variable
                raise ProviderError(f"{host} answers with a redirect; check {variable}", permanent=True)
            connection = response.connection
            if connection is not None and connection.protocol is not None:
                connection.protocol.read_timeout = None  # it would set a timer at every event; see _Silence
            yield ProviderResponse(response.status, list(response.headers.items()), self._chunks(response))
        finally:
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    def _url(self, path: str) -> URL:
        """Return the URL of a request. The last one is remembered: nearly all calls have the same."""
        if self._last is None or self._last[0] != path:
            self._last = (path, self.endpoint.url(path))
        return self._last[1]

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        content, silence = response.content, _Silence(response.content)
        try:
            while True:
                silence.begin()
                chunk = await content.readany()
                silence.end()
                if not chunk:
                    return
                yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._error(error) from None
        finally:
            silence.close()

    def _error(self, error: Exception) -> ProviderError:
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
