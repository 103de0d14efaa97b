"""Where a provider is reached: its base URL, the HTTP proxy on the way, and the CAs that are trusted."""

from __future__ import annotations

import functools
import ipaddress
import logging
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from yarl import URL

from ....errors import ConfigError
from ....wire.dataclass import dataclass

log = logging.getLogger(__name__)

_QUERY = re.compile(r"(api-version=[A-Za-z0-9.-]{1,40})?")


@dataclass(frozen=True)
class Endpoint:
    """The base URL of a provider and the HTTP proxy on the way.

    `variable` names the environment variable that sets the base URL. The proxy's URL may hold a password: repr hides
    it. The base may have the query `api-version=…`, which every request gets: Azure wants one.
    """

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
        """The provider's host, with the port unless it is the usual one. A stored key belongs to this name."""
        host = f"[{self.base.host}]" if ":" in (self.base.host or "") else self.base.host or ""
        return host if self.base.is_default_port() else f"{host}:{self.base.port}"


def endpoint_at(text: str, variable: str, environ: Mapping[str, str], *, allow_plain: bool = False) -> Endpoint:
    """Return the endpoint at the URL `text`, which the environment variable `variable` sets. Raise ConfigError.

    HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY in `environ` choose the proxy; a loopback endpoint never uses one.
    Plain http is accepted for loopback, and with `allow_plain` for other hosts.
    """
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
    """Return whether an entry of NO_PROXY covers a host: `*`, a name with all below it (`example.com`,
    `.example.com`, `*.example.com`), an address, or a network (`10.0.0.0/8`); each perhaps with a port."""
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
"""A certificate with which this machine shows who it is, as some gateways want it, and its key if that is in another
file."""


def names_authorities(environ: Mapping[str, str]) -> bool:
    """Return whether the environment names CAs to trust instead of the system's, or a certificate to show."""
    return any(environ.get(name) for name in (*_AUTHORITIES, CLIENT_CERTIFICATE))


def tls_context(environ: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """Return a verifying context with the system's CAs, or those of SSL_CERT_FILE and SSL_CERT_DIR, and with the
    certificate of CCB_CLIENT_CERT.

    Raise ConfigError.
    """
    cafile, capath = (environ.get(name) or None for name in _AUTHORITIES)
    for name, value, good in (
        ("SSL_CERT_FILE", cafile, cafile is None or Path(cafile).is_file()),
        ("SSL_CERT_DIR", capath, capath is None or Path(capath).is_dir()),
    ):
        if not good:
            raise ConfigError(f"{name} does not exist: {value}", do=f"Correct or unset {name}.")
    try:
        context = ssl.create_default_context(cafile=cafile, capath=capath)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            "SSL_CERT_FILE is not a file of CA certificates",
            evidence=str(error),
            do="Set SSL_CERT_FILE to a file of certificates in PEM format.",
        ) from None
    certificate = environ.get(CLIENT_CERTIFICATE)
    if certificate:
        try:
            context.load_cert_chain(certificate, environ.get(CLIENT_KEY) or None, password=_no_password)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(
                f"the certificate in {CLIENT_CERTIFICATE} cannot be used",
                evidence=str(error.strerror or error),
                do=f"Set {CLIENT_CERTIFICATE} to a PEM file, and {CLIENT_KEY} to its key without a passphrase.",
            ) from None
    return context


@functools.cache
def system_context() -> ssl.SSLContext:
    """Return the verifying context with the system's CAs. All connections share it: reading them takes 25 ms."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context


def _no_password() -> str:
    """Answer OpenSSL, which would ask for the passphrase of a key on the terminal."""
    return ""
