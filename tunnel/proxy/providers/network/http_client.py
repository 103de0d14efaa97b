"""HTTP to a provider: one pooled aiohttp session that verifies TLS and uses the proxy of the environment.

aiohttp takes 70 to 120 ms to load. It is loaded in a thread while the worker starts, so that no session waits for it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from ....loading import load_aiohttp
from ..provider import ProviderError, ProviderRequest, ProviderResponse
from .endpoint import Endpoint, names_authorities, system_context, tls_context

if TYPE_CHECKING:
    import aiohttp

CONNECT_TIMEOUT = 30.0
"""Seconds for the TCP and TLS handshakes."""

READ_TIMEOUT = 3600.0
"""Seconds without a byte after which a call is given up. How long a model may say nothing is the worker's decision
(`remote/model/retry.py`); this is for calls whose worker does not come back."""

_MAX_HEADER = 64 * 1024
"""Bytes of one header of an answer."""


def _load(*, trusts_system: bool) -> ssl.SSLContext | None:
    """Load aiohttp. Return the context for the system's CAs if that is wanted."""
    load_aiohttp()
    return system_context() if trusts_system else None


class ProviderClient:
    """Sends requests to one endpoint. A context: leaving it closes the connections.

    It follows no redirects, since the credential would follow them, and keeps no cookies. Raise ConfigError for CAs in
    `environ` that cannot be read. Without any there, the system's count, which are read in the thread that loads
    aiohttp.
    """

    def __init__(self, endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> None:
        self.endpoint = endpoint
        own = endpoint.secure and names_authorities(environ)
        self._tls: ssl.SSLContext | None = tls_context(environ) if own else None
        self._opening: asyncio.Task[aiohttp.ClientSession] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        opening, self._opening = self._opening, None
        if opening is None:
            return
        opening.cancel()
        await asyncio.wait((opening,))
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().close()

    def prepare(self) -> None:
        """Load what sends requests, in a thread. Later calls do nothing."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="load the HTTP client")

    async def _open(self) -> aiohttp.ClientSession:
        system = await asyncio.to_thread(_load, trusts_system=self.endpoint.secure and self._tls is None)
        import aiohttp

        # Without a context no certificate is trusted: see `load_aiohttp`.
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=128, ssl=self._tls or system or True, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
            auto_decompress=False,
            max_line_size=_MAX_HEADER,
            max_field_size=_MAX_HEADER,
        )

    @asynccontextmanager
    async def request(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        """Send `request` and yield its response as a context. Leaving the context early aborts the call.

        The path of the request is appended to that of the base URL unchanged. A body that raises before its first
        piece sends nothing. Raise ProviderError.
        """
        self.prepare()
        assert self._opening is not None
        session = await asyncio.shield(self._opening)
        import aiohttp

        endpoint, headers = self.endpoint, dict(request.headers)
        sends = request.method != "GET"
        if sends and request.size is not None:
            headers["content-length"] = str(request.size)
        try:
            answer = await session.request(
                request.method,
                endpoint.url(request.path),
                headers=headers,
                data=request.body if sends else None,
                allow_redirects=False,
                proxy=endpoint.proxy,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._error(error) from None
        async with answer:
            if 300 <= answer.status < 400:
                text = f"{endpoint.host} answers with a redirect; check {endpoint.variable}"
                raise ProviderError(text, permanent=True)
            if answer.status < 200:
                raise ProviderError(f"{endpoint.host} answers with the status {answer.status}")
            yield ProviderResponse(answer.status, list(answer.headers.items()), self._pieces(answer))

    async def _pieces(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        import aiohttp

        try:
            async for piece in answer.content.iter_any():
                yield piece
        except (aiohttp.ClientError, OSError) as error:
            raise self._error(error) from None

    def _error(self, error: Exception) -> ProviderError:
        """Say in one sentence which host failed and why, without any part of the request."""
        import aiohttp

        host = self.endpoint.host
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            cause = str(error.certificate_error)
            hint = "if a proxy with its own CA is in between, name that CA in SSL_CERT_FILE"
            return ProviderError(f"the TLS certificate of {host} was refused: {cause}; {hint}", permanent=True)
        if isinstance(error, aiohttp.ClientHttpProxyError):
            permanent = error.status == 407
            return ProviderError(f"the proxy on the way to {host} answered {error.status}", permanent=permanent)
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return ProviderError(f"the proxy on the way to {host} does not answer")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return ProviderError(f"the name {host} does not resolve")
        if isinstance(error, aiohttp.ClientConnectorSSLError):
            return ProviderError(f"no TLS with {host}: {error.os_error}", permanent=True)
        if isinstance(error, aiohttp.ClientConnectorError):
            failed = error.os_error  # str(failed) says only "Connect call failed" and an address
            text = os.strerror(failed.errno) if failed.errno else str(failed)
            return ProviderError(f"{error.host} does not answer: {text}")
        if isinstance(error, TimeoutError):
            return ProviderError(f"{host} did not answer in time")
        return ProviderError(f"the connection to {host} broke ({type(error).__name__})")
