"""HTTP requests to a provider: its address, TLS, the HTTP proxy on the way, and the base class of providers.

aiohttp takes 70 to 120 ms to load: that happens in a thread while the worker starts."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from yarl import URL

from ..errors import ConfigError, CredentialError
from ..heavy_imports import load_aiohttp
from ..wire.dataclass import dataclass
from .credential import Credential, CredentialSource
from .provider import ProviderError, ProviderRequest, ProviderResponse, WholeBody
from .request_body import model_of, read_json

if TYPE_CHECKING:
    import aiohttp


class Provider(ABC):
    """The one seam between the auth proxy and a model API, at one endpoint and with one credential.

    The worker speaks the Anthropic Messages API and nothing else. A provider takes one such request, calls its own API
    with its own credential, and returns the answer as an Anthropic response. The auth proxy checks the request before,
    and buffers the answer behind, so resuming, cancelling and the limits are the same for every provider. The
    credential stays inside: neither the response nor an error nor a log line may show it. It is None for a server that
    wants none. `given_name` is "" for the provider without a name in front of its models."""

    def __init__(self, credential: CredentialSource | None, client: ProviderClient, given_name: str = "") -> None:
        self.credential = credential
        self.client = client
        self.given_name = given_name

    @abstractmethod
    def exchange(self, request: ProviderRequest) -> AbstractAsyncContextManager[ProviderResponse]:
        """Send one request and yield its response as a context; leaving it early aborts the call. Raise ProviderError,
        CredentialError, ConfigError. A 401 to a credential that may be replaced carries `x-should-retry: true`."""

    @property
    def name(self) -> str:
        """The name under which the person knows the provider: its host."""
        host = self.client.endpoint.host
        return f"{self.given_name} ({host})" if self.given_name else host

    @property
    def what_to_check(self) -> str:
        """What a person should look at when the provider cannot be reached."""
        return f"{self.client.endpoint.variable}, the network, HTTPS_PROXY"

    async def credential_name(self) -> str:
        """Say where the credential comes from (`apiKeySource` in system/init). Raise CredentialError, ConfigError."""
        try:
            return (await self.credential.get()).source if self.credential is not None else "none"
        except ProviderError as error:  # what renews the token cannot be reached
            raise CredentialError("The model credential cannot be renewed.", evidence=str(error)) from None

    async def _read(self, request: ProviderRequest) -> tuple[dict[str, Any], str]:
        """Return the request, and the model that it asks for by the provider's own name. Raise Refusal."""
        asked = await read_json(request.body.take())
        return asked, model_of(asked).removeprefix(f"{self.given_name}/")

    async def _without_key(self, response: ProviderResponse, sent: Credential | None) -> ProviderResponse:
        """Return an answer; an error without the credential that was sent. Some servers repeat what they got."""
        if response.status < 400 or sent is None:
            return response
        text = await response.start(_MAX_ERROR)
        for secret in filter(None, (sent.api_key, sent.bearer)):
            text = text.replace(secret.reveal().encode(), b"...")
        sizes = {"content-length": str(len(text))}
        headers = [(name, sizes.get(name.lower(), value)) for name, value in response.headers]
        return replace(response, headers=headers, chunks=WholeBody(text))

    async def _may_have_another(self, refused: Credential | None) -> bool:
        return self.credential is not None and refused is not None and await self.credential.refused(refused)


log = logging.getLogger(__name__)

_MAX_ERROR = 1024 * 1024  # bytes of the text of an error
_QUERY = re.compile(r"(api-version=[A-Za-z0-9.-]{1,40})?")


@dataclass(frozen=True)
class Endpoint:
    """The base URL of a provider and the HTTP proxy on the way. `variable` sets the base URL. The proxy's URL may hold
    a password: repr hides it. The base may have the query `api-version=…` (Azure's), which every request gets."""

    base: URL
    proxy: URL | None = field(repr=False)
    variable: str

    def url(self, path: str) -> URL:
        """Return the URL of a request: `path` with its query behind the base, unchanged."""
        version = self.base.query_string
        if version:
            path += f"{'&' if '?' in path else '?'}{version}"
        return URL(str(self.base.with_query(None)).rstrip("/") + path, encoded=True)

    @property
    def secure(self) -> bool:
        """Whether the provider or the proxy has a TLS certificate to verify."""
        return "https" in (self.base.scheme, self.proxy and self.proxy.scheme)

    @property
    def host(self) -> str:
        host = f"[{self.base.host}]" if ":" in (self.base.host or "") else self.base.host or ""
        return host if self.base.is_default_port() else f"{host}:{self.base.port}"


def endpoint_at(text: str, variable: str, environ: Mapping[str, str], *, allow_plain: bool = False) -> Endpoint:
    """Return the endpoint at the URL `text`, which `variable` sets. Raise ConfigError. HTTPS_PROXY, NO_PROXY and the
    like choose the proxy; a loopback endpoint never uses one. Plain http is accepted for loopback, and with
    `allow_plain` for others."""
    do = f"Set {variable} to a URL such as https://api.example.com"
    try:
        base = URL(text)
        host, port = base.host, base.port
    except ValueError as error:
        raise ConfigError(f"{variable} is not a URL", evidence=str(error), do=do) from None
    if base.scheme not in ("http", "https") or not host or not port:
        raise ConfigError(f"{variable} is not an http or https URL", do=do)
    if base.user or base.password or base.fragment or not _QUERY.fullmatch(base.query_string):
        raise ConfigError(f"{variable} must not have a user, a query or a fragment", do=do)
    if base.scheme == "http" and not _is_loopback(host):
        if not allow_plain:
            raise ConfigError(
                f"{variable} would send the credential to {host} without TLS",
                do="Use https. If you trust that network, allow http with CCB_ALLOW_HTTP_UPSTREAM=1.",
            )
        log.warning("model calls and the credential go to %s without TLS", host)
    return Endpoint(base, None if _is_loopback(host) else _proxy_for(base, environ), variable)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def proxy_variable(base: URL, environ: Mapping[str, str]) -> str | None:
    """Return the name of the variable that sets a proxy for `base`, or None. NO_PROXY is not considered."""
    names = ("https_proxy", "HTTPS_PROXY") if base.scheme == "https" else ("http_proxy",)
    return next((name for name in (*names, "all_proxy", "ALL_PROXY") if environ.get(name)), None)


def _proxy_for(base: URL, environ: Mapping[str, str]) -> URL | None:
    name = proxy_variable(base, environ)
    if name is None:
        return None
    no_proxy = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if any(_excludes(entry, base.host or "", base.port or 0) for entry in re.split(r"[,\s]+", no_proxy)):
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


def _excludes(entry: str, host: str, port: int) -> bool:
    """Return whether an entry of NO_PROXY covers a host: `*`, a name with all below it (`example.com`, `.example.com`),
    an address, or a network (`10.0.0.0/8`); each perhaps with a port."""
    entry, host = entry.strip().lower(), host.lower()
    if entry == "*":
        return True
    name, _, only = entry.rpartition(":")
    if name and only.isdecimal() and (name.endswith("]") or ":" not in name):
        if int(only) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:  # one of them is a name; names are not resolved for this
        suffix = entry.removeprefix("*").lstrip(".")
        return bool(suffix) and (host == suffix or host.endswith(f".{suffix}"))


_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
CLIENT_CERTIFICATE, CLIENT_KEY = "CCB_CLIENT_CERT", "CCB_CLIENT_KEY"
"""A certificate that this machine shows, as some gateways want it, and its key if that is in another file."""


def tls_context(environ: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """Return a verifying context with the system's CAs, or those of SSL_CERT_FILE and SSL_CERT_DIR, and with the
    certificate of CCB_CLIENT_CERT. Raise ConfigError."""
    cafile, capath = (environ.get(name) or None for name in _AUTHORITIES)
    if cafile is not None and not Path(cafile).is_file():
        raise ConfigError(f"SSL_CERT_FILE does not exist: {cafile}", do="Correct or unset SSL_CERT_FILE.")
    if capath is not None and not Path(capath).is_dir():
        raise ConfigError(f"SSL_CERT_DIR does not exist: {capath}", do="Correct or unset SSL_CERT_DIR.")
    try:
        context = ssl.create_default_context(cafile=cafile, capath=capath)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            "SSL_CERT_FILE is not a file of CA certificates",
            evidence=str(error),
            do="Set SSL_CERT_FILE to a file of certificates in PEM format.",
        ) from None
    if certificate := environ.get(CLIENT_CERTIFICATE):
        try:  # the empty password: OpenSSL would ask for the passphrase of a key on the terminal
            context.load_cert_chain(certificate, environ.get(CLIENT_KEY) or None, password="")
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(
                f"the certificate in {CLIENT_CERTIFICATE} cannot be used",
                evidence=str(error.strerror or error),
                do=f"Set {CLIENT_CERTIFICATE} to a PEM file, and {CLIENT_KEY} to its key without a passphrase.",
            ) from None
    return context


CONNECT_TIMEOUT = 30.0  # seconds for the TCP and TLS handshakes

READ_TIMEOUT = 3600.0
"""Seconds without a byte after which a call is given up: for calls whose worker does not come back. How long a model
may say nothing is the worker's decision (`remote/model/retry.py`)."""

_MAX_HEADER = 64 * 1024


class ProviderClient:
    """Sends requests to one endpoint. A context: leaving it closes the connections. It follows no redirects, since the
    credential would follow them, and keeps no cookies. Raise ConfigError for CAs in `environ` that cannot be read."""

    def __init__(self, endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> None:
        self.endpoint = endpoint
        own = endpoint.secure and any(environ.get(name) for name in (*_AUTHORITIES, CLIENT_CERTIFICATE))
        self._tls: ssl.SSLContext | None = tls_context(environ) if own else None
        self._opening: asyncio.Task[aiohttp.ClientSession] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is None:
            return
        opening.cancel()
        await asyncio.wait((opening,))
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().close()

    def prepare(self) -> None:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="load the HTTP client")

    async def _open(self) -> aiohttp.ClientSession:
        await asyncio.to_thread(load_aiohttp)  # it reads the CAs of the system
        import aiohttp

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=128, ssl=self._tls or True, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
            auto_decompress=False,
            max_line_size=_MAX_HEADER,
            max_field_size=_MAX_HEADER,
        )

    @asynccontextmanager
    async def request(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        """Send `request` and yield its response as a context. Leaving it early aborts the call. Raise ProviderError."""
        self.prepare()
        assert self._opening is not None
        session = await asyncio.shield(self._opening)
        import aiohttp

        endpoint, headers = self.endpoint, dict(request.headers)
        sends = request.method != "GET"
        if sends:
            headers["content-length"] = str(request.body.size)
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


Sign = Callable[[str], Awaitable[Mapping[str, str]]]
"""Returns the headers that authenticate a request to a URL. Raise CredentialError, ConfigError."""

_MAX_LISTED = 16 * 1024 * 1024  # bytes
_PLAIN = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "ccb"}


async def signed_request(
    client: ProviderClient, sign: Sign, method: str, path: str, body: bytes = b""
) -> tuple[int, Sequence[tuple[str, str]], bytes]:
    """Return the status, the headers and the body of an answer. Raise ProviderError, and what `sign` raises."""
    headers = {**_PLAIN, **({"content-type": "application/json"} if body else {})}
    headers |= await sign(str(client.endpoint.url(path)))
    async with client.request(ProviderRequest(method, path, headers, WholeBody(body))) as response:
        received = await response.start(_MAX_LISTED + 1)
    if len(received) > _MAX_LISTED:
        raise ProviderError("its list of models is too long", permanent=True)
    return response.status, response.headers, received
