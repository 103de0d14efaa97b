"""Fetch one web page, on the host or on the laptop, within limits of addresses, size and time."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import socket
import time
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from .control_protocol import Answer, AnsweredBy, RequestFailed, RequestKind, RequestRefused, payload_of
from .dataclass import dataclass
from .frames import Json
from .messages import as_text

if TYPE_CHECKING:
    import http.client

MAX_BODY = 10 << 20  # most bytes of a page, after decompression
TIMEOUT_S = 60.0  # seconds for a page with all its redirects
_STEP_S = 15.0  # of silence
_MAX_REDIRECTS = 10
_BLOCK = 1 << 16
_TEXT = tuple(f"application/{name}" for name in ("xhtml+xml", "json", "xml", "javascript", "x-yaml", "yaml"))
_MOVED = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class WebPage:
    """A fetched page, `cut` at the limit. `redirect`, without a body, leads to another host."""

    url: str
    status: int
    reason: str
    media_type: str
    charset: str
    body: bytes
    redirect: str = ""
    cut: bool = False

    def text(self) -> str | None:
        """Return the page as text, None for another kind of content."""
        kind = self.media_type
        if not (self.redirect or kind.startswith("text/") or kind in _TEXT or kind.endswith(("+json", "+xml"))):
            return None
        try:
            return self.body.decode(self.charset or "utf-8", "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")


class WebFetcher:
    """Fetches one page. `stop`, called from any thread, ends it."""

    def __init__(self, *, allow_private: bool, max_body: int = MAX_BODY) -> None:
        self._allow_private = allow_private
        self._max_body = max_body
        self._deadline = time.monotonic() + TIMEOUT_S
        self._socket: socket.socket | None = None
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def fetch(self, url: str) -> WebPage:
        """Return the page. Follow redirects on the same host only. Raise WebRefused."""
        place = read_url(url)
        for _ in range(_MAX_REDIRECTS + 1):
            page, target = self._hop(place)
            if not target:
                return page
            following = read_url(target)
            is_same_site = place.host.removeprefix("www.") == following.host.removeprefix("www.")
            if not is_same_site or (place.scheme, following.scheme) == ("https", "http"):
                return WebPage(place.url, page.status, page.reason, "", "", b"", redirect=following.url)
            place = following
        raise WebRefused(f"more than {_MAX_REDIRECTS} redirects")

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebPage:
        """Send a JSON object and return the answer. Follow no redirect. Raise WebRefused."""
        return self._hop(read_url(url), body, headers)[0]

    def _hop(
        self, place: WebPlace, sent: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[WebPage, str]:
        """Make one request. Return the page, and where it sends to."""
        import http.client  # brings TLS; most sessions fetch nothing

        connection = http.client.HTTPConnection(place.host, place.port)
        try:
            self._socket = connection.sock = self._connected(place)
            all_headers = {
                "User-Agent": "ccb (+https://pypi.org/project/ccb/)",
                "Accept": "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5",
                "Accept-Encoding": "gzip, identity",
                "Connection": "close",
                **({} if sent is None else {"Content-Type": "application/json"}),
                **(headers or {}),
            }
            connection.request("GET" if sent is None else "POST", place.target, sent, all_headers)
            response = connection.getresponse()
            location = response.headers.get("Location", "")
            target = urljoin(place.url, location) if response.status in _MOVED and location else ""
            body, cut = (b"", False) if target else self._body(response)
            kind, charset = response.headers.get_content_type(), response.headers.get_content_charset("")
            return WebPage(
                place.url, response.status, response.reason or "", kind, charset or "", body, cut=cut
            ), target
        except WebRefused:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self._stopped:
                raise WebRefused("the request was stopped") from None
            raise WebRefused(f"{place.host} could not be read: {error or type(error).__name__}") from None
        finally:
            self._socket = None
            connection.close()

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0 or self._stopped:
            raise WebRefused(f"the page took longer than {TIMEOUT_S:.0f} s")
        return min(left, _STEP_S)

    def _connected(self, place: WebPlace) -> socket.socket:
        problem: OSError | None = None
        proxy = proxy_for(place)
        # Where private addresses are allowed, there is nothing to check, and the proxy may know names that we do not.
        names = proxy is not None and self._allow_private
        for address in [place.host] if names else resolve(place, allow_private=self._allow_private):
            try:
                if proxy is None:
                    plain = socket.create_connection((address, place.port), self._left())
                else:
                    plain = tunnel(proxy, address, place.port, self._left())
            except OSError as error:
                problem = error
                continue
            if place.scheme == "http":
                return plain
            import ssl

            try:
                return ssl.create_default_context().wrap_socket(plain, server_hostname=place.host)
            except (OSError, ValueError):
                plain.close()
                raise
        raise problem or OSError("no address")

    def _body(self, response: http.client.HTTPResponse) -> tuple[bytes, bool]:
        """Return the body, decompressed, up to the limit, and whether there is more."""
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", ""):
            raise WebRefused(f"the server answered in the encoding {encoding[:40]}, which was not asked for")
        unpack = zlib.decompressobj(zlib.MAX_WBITS | 16) if encoding == "gzip" else None
        parts: list[bytes] = []
        room = self._max_body + 1
        while room > 0 and not response.isclosed():  # with its last byte, a body of a known length closes the socket
            if self._socket is not None:
                self._socket.settimeout(self._left())
            block = response.read(_BLOCK)
            if not block:
                break
            try:
                block = unpack.decompress(block, room) if unpack is not None else block
            except zlib.error:
                raise WebRefused("the compressed page is damaged") from None
            parts.append(block[:room])
            room -= len(block)
        body = b"".join(parts)
        return body[: self._max_body], len(body) > self._max_body


MAX_TEXT = 1_000_000  # most characters of a page that a laptop sends to the host


@dataclass(frozen=True)
class FetchedText:
    """A page as text. `redirect` is set, and there is no text, if the server sends to another host."""

    url: str
    status: int
    reason: str
    media_type: str
    text: str
    redirect: str = ""
    cut: bool = False


def _read(fields: Json) -> str:
    url = as_text(fields.get("url"))
    try:
        read_url(url)
    except WebRefused as refused:
        raise RequestRefused(str(refused)) from None
    return url


def _fetched(answer: Answer) -> FetchedText:
    fields = payload_of(answer)
    status = fields.get("status")
    if not isinstance(status, int):
        raise RequestFailed("the laptop's answer cannot be read")
    url, reason, kind, text, redirect = (
        as_text(fields.get(name)) for name in ("url", "reason", "media_type", "text", "redirect")
    )
    return FetchedText(url, status, reason, kind, text[:MAX_TEXT], redirect, fields.get("cut") is True)


WEB_FETCH: RequestKind[str, FetchedText] = RequestKind(
    "web_fetch", AnsweredBy.LAPTOP, _fetched, lambda url: {"url": url}, _read, False, TIMEOUT_S + 30
)
"""Fetch a page in the network of the laptop."""

MAX_URL = 2_000
_PORTS = {"http": 80, "https": 443}
_OF_A_SITE = ipaddress.ip_network("fec0::/10")
_OF_A_CLOUD = (ipaddress.ip_address("168.63.129.16"), ipaddress.ip_address("192.0.0.192"))
"""Only reached inside: old private networks (RFC 3879), the servers that configure machines of Azure and Oracle."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class WebRefused(Exception):
    """The URL may not be fetched, or could not be; the text says why."""


@dataclass(frozen=True)
class WebPlace:
    """The parts of a URL that a request needs. `target` is the path with its query; `host` is in lower case."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.target}"


def read_url(url: str) -> WebPlace:
    """Raise WebRefused unless it is a plain http or https URL."""
    if len(url) > MAX_URL:
        raise WebRefused(f"the URL has more than {MAX_URL} characters")
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
        host = host.encode("idna").decode("ascii").lower() if not host.isascii() else host.lower()
    except ValueError:
        raise WebRefused("the URL is not valid") from None
    if parts.scheme not in _PORTS:
        raise WebRefused("only http and https URLs can be fetched")
    if parts.username is not None or parts.password is not None:
        raise WebRefused("the URL holds a user name or a password")
    if not host or not url.strip().isprintable():
        raise WebRefused("the URL is not valid")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    target = quote(target, safe="/?&=%+,;:@!$'()*~-._#[]|")
    return WebPlace(parts.scheme, host.rstrip("."), port or _PORTS[parts.scheme], target)


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet, in whatever form it is written."""
    try:
        ip = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    if ip in _OF_A_CLOUD or ip in _OF_A_SITE:
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_loopback or ip.is_link_local)


def resolve(place: WebPlace, *, allow_private: bool) -> list[str]:
    """Return the addresses of a host. Raise WebRefused if one is private: a name that has both is a trap."""
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise WebRefused(f"{place.host} cannot be resolved: {getattr(error, 'strerror', None) or error}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    private = [each for each in addresses if not is_public(each)]
    if private and not allow_private:
        raise WebRefused(f"{place.host} is at {private[0]}, no public address. Set webAllowPrivate to fetch from it")
    return addresses


_MAX_HEAD = 16_384


def proxy_for(place: WebPlace) -> SplitResult | None:
    """Return the proxy that the environment names for a URL. Raise WebRefused for one of another kind than HTTP."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib import request

    known = request.getproxies_environment()
    given = known.get(place.scheme) or known.get("all")
    if not given or request.proxy_bypass(place.host):
        return None
    try:
        proxy = urlsplit(given if "://" in given else "http://" + given)
        usable = proxy.scheme == "http" and bool(proxy.hostname) and (proxy.port or 80) > 0
    except ValueError:
        usable = False
    if not usable:
        raise WebRefused("the proxy that the environment names is no http:// proxy; correct HTTPS_PROXY or NO_PROXY")
    return proxy


def tunnel(proxy: SplitResult, host: str, port: int, timeout: float) -> socket.socket:
    """Return a connection through the proxy. Raise OSError or WebRefused."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n"
    if proxy.username:
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
        head += f"Proxy-Authorization: Basic {base64.b64encode(login).decode()}\r\n"
    made = socket.create_connection((proxy.hostname or "", proxy.port or 80), timeout)
    try:
        made.sendall((head + "\r\n").encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            byte = made.recv(1)
            if not byte or len(answer) > _MAX_HEAD:
                raise WebRefused("the proxy gave no proper answer")
            answer += byte
        words = answer.split(b"\r\n")[0].decode("latin-1").split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].startswith("2"):
            status = " ".join(words[1:])[:100]
            wanted = "If it wants names and not addresses, set webAllowPrivate: then it decides where a name leads"
            raise WebRefused(f"the proxy refuses {where}: {status!r}. {wanted}")
    except (OSError, WebRefused):
        made.close()
        raise
    return made
