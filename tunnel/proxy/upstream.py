"""The provider as the proxy reaches it: one pooled HTTP client, TLS verified, environment proxies honoured."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import os
import ssl
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aiohttp
from yarl import URL

from ..errors import ConfigError

log = logging.getLogger(__name__)

DEFAULT_BASE_URL = "https://api.anthropic.com"
CONNECT_TIMEOUT = 30.0
READ_TIMEOUT = 600.0  # of silence; the worker's own watchdog is shorter
_AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class UpstreamError(Exception):
    """The provider could not be reached or broke off. `permanent` when the same call will fail again."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


@dataclass(frozen=True)
class UpstreamResponse:
    """A response head; `chunks` gives the body as it comes and raises `UpstreamError`."""

    status: int
    headers: list[tuple[str, str]]
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True)
class UpstreamConfig:
    """Where model calls go. `proxy` may hold a password: it is not shown."""

    base: URL
    proxy: URL | None = field(repr=False)

    @property
    def secure(self) -> bool:
        """Whether somebody on the way has a certificate to show."""
        return "https" in (self.base.scheme, self.proxy and self.proxy.scheme)

    @property
    def host(self) -> str:
        """Host of the provider, with the port when it is not the usual one; what a stored key belongs to."""
        host = self.base.host or ""
        return host if self.base.is_default_port() else f"{host}:{self.base.port}"


def upstream_config(environ: Mapping[str, str], *, allow_plain: bool = False) -> UpstreamConfig:
    """Read ANTHROPIC_BASE_URL, HTTPS_PROXY, HTTP_PROXY and NO_PROXY. Raises `ConfigError`.

    Plain http is for loopback, or for other hosts with `allow_plain`. A loopback upstream never uses a proxy.
    """
    text = environ.get("ANTHROPIC_BASE_URL", "").strip() or DEFAULT_BASE_URL
    do = "Set ANTHROPIC_BASE_URL to something like https://api.anthropic.com"
    try:
        base = URL(text)
        host, port = base.host, base.port
    except ValueError as error:
        raise ConfigError("ANTHROPIC_BASE_URL is not a URL", evidence=str(error), do=do) from None
    if base.scheme not in ("http", "https") or not host or not port:
        raise ConfigError("ANTHROPIC_BASE_URL is not an http or https URL", do=do)
    if base.user or base.password or base.query_string or base.fragment:
        raise ConfigError("ANTHROPIC_BASE_URL must not have a user, a query or a fragment", do=do)
    if base.scheme == "http" and not _is_loopback(host):
        if not allow_plain:
            raise ConfigError(
                f"ANTHROPIC_BASE_URL would send the credential to {host} without TLS",
                do="Use https, or allow it with CCB_ALLOW_HTTP_UPSTREAM=1 if that network is trusted.",
            )
        log.warning("model calls and the credential go to %s without TLS", host)
    return UpstreamConfig(base, None if _is_loopback(host) else _proxy_for(base, environ))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def proxy_variable(base: URL, environ: Mapping[str, str]) -> str | None:
    """The name of the variable that names a proxy for `base`, whether or not NO_PROXY excepts it."""
    names = ("https_proxy", "HTTPS_PROXY") if base.scheme == "https" else ("http_proxy",)
    return next((name for name in (*names, "all_proxy", "ALL_PROXY") if environ.get(name)), None)


def _proxy_for(base: URL, environ: Mapping[str, str]) -> URL | None:
    name = proxy_variable(base, environ)
    if name is None:
        return None
    no_proxy = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if urllib.request.proxy_bypass_environment(f"{base.host}:{base.port}", {"no": no_proxy}):  # type: ignore[attr-defined]
        return None
    text = environ[name] if "://" in environ[name] else f"http://{environ[name]}"
    try:
        proxy = URL(text)
        valid = proxy.scheme in ("http", "https") and proxy.host
    except ValueError:
        valid = None
    if not valid:
        raise ConfigError(f"{name} is not an http or https proxy", do=f"Set {name} to http://host:port, or unset it.")
    return proxy


def _proxy_authorization(proxy: URL | None) -> dict[str, str] | None:
    if proxy is None or not proxy.user:
        return None
    pair = f"{proxy.user}:{proxy.password or ''}".encode()
    return {"proxy-authorization": "Basic " + base64.b64encode(pair).decode("ascii")}


def tls_context(environ: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """A verifying context that trusts the system's CAs, or those of SSL_CERT_FILE and SSL_CERT_DIR. Raises `ConfigError`."""
    cafile, capath = environ.get("SSL_CERT_FILE") or None, environ.get("SSL_CERT_DIR") or None
    for name, value, good in (
        ("SSL_CERT_FILE", cafile, cafile is None or Path(cafile).is_file()),
        ("SSL_CERT_DIR", capath, capath is None or Path(capath).is_dir()),
    ):
        if not good:
            raise ConfigError(f"{name} does not exist: {value}", do=f"Correct or unset {name}.")
    try:
        return ssl.create_default_context(cafile=cafile, capath=capath)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError("SSL_CERT_FILE is no CA bundle", evidence=str(error), do="Give a PEM file.") from None


class Upstream:
    """Requests to the provider. Redirects are not followed (the credential would follow them), cookies are not kept."""

    def __init__(self, config: UpstreamConfig, tls: ssl.SSLContext | None = None) -> None:
        self._config = config
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Upstream:
        """The upstream that the environment describes. Raises `ConfigError`."""
        config = upstream_config(environ, allow_plain=environ.get("CCB_ALLOW_HTTP_UPSTREAM") == "1")
        return cls(config, tls_context(environ) if config.secure else None)

    @property
    def host(self) -> str:
        """Host of the provider, with the port when it is not the usual one."""
        return self._config.host

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=128, ssl=self._tls or True, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=None, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_AUTO_HEADERS,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: AsyncIterator[bytes] | None, size: int | None
    ) -> AsyncIterator[UpstreamResponse]:
        """Send a call and give its response head; leaving the context early aborts it. `path` is used as it is, behind the
        path of the base URL. Raises `UpstreamError`."""
        assert self._session is not None
        framing = {"content-length": str(size)} if size is not None and method != "GET" else {}
        proxy = self._config.proxy
        try:
            response = await self._session.request(
                method,
                URL(str(self._config.base).rstrip("/") + path, encoded=True),
                headers={**headers, **framing},
                data=None if method == "GET" else body,
                allow_redirects=False,
                proxy=proxy.with_user(None) if proxy is not None else None,
                proxy_headers=_proxy_authorization(proxy),
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._error(error) from None
        try:
            if 300 <= response.status < 400:
                raise UpstreamError(f"{self.host} answers with a redirect; check ANTHROPIC_BASE_URL", permanent=True)
            yield UpstreamResponse(response.status, list(response.headers.items()), self._chunks(response))
        finally:
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._error(error) from None

    def _error(self, error: Exception) -> UpstreamError:
        """One sentence that names the host and the cause, and nothing of the request."""
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            cause = str(error.certificate_error)
            hint = "if a proxy with its own CA is in between, name that CA in SSL_CERT_FILE"
            return UpstreamError(f"the TLS certificate of {self.host} was refused: {cause}; {hint}", permanent=True)
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return UpstreamError(
                f"the proxy on the way to {self.host} answered {error.status}", permanent=error.status == 407
            )
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return UpstreamError(f"the proxy on the way to {self.host} does not answer")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return UpstreamError(f"the name {self.host} does not resolve")
        if isinstance(error, aiohttp.ClientConnectorSSLError):
            return UpstreamError(f"no TLS with {self.host}: {error.os_error}", permanent=True)
        if isinstance(error, aiohttp.ClientConnectorError):
            failed = error.os_error  # asyncio's own words are "Connect call failed" and an address
            return UpstreamError(
                f"{error.host} does not answer: {os.strerror(failed.errno) if failed.errno else failed}"
            )
        if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
            return UpstreamError(f"{self.host} did not answer in time")
        return UpstreamError(f"the connection to {self.host} broke ({type(error).__name__})")
