"""Fetch one page: blocking code of the standard library, with limits of size and time, and a connection to the very
address that was checked, also through a proxy."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
import zlib
from collections.abc import Mapping
from urllib.parse import urljoin

from ..dataclass import dataclass
from .addresses import WebPlace, WebRefused, read_url, resolve, same_site
from .proxies import proxy_for, tunnel

MAX_BODY = 10 << 20
"""Most bytes of a page, after decompression."""
TIMEOUT_S = 60.0
"""Seconds for a page with all its redirects."""

_STEP_S = 15.0  # of silence
_MAX_REDIRECTS = 10
_BLOCK = 1 << 16
_MOVED = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class Page:
    """A fetched page. `redirect` is set, and there is no body, if the server sends to another host. `cut`: the body was
    longer than the limit."""

    url: str
    status: int
    reason: str
    media_type: str
    charset: str
    body: bytes
    redirect: str = ""
    cut: bool = False


class WebFetcher:
    """Fetches one page. `stop`, called from any thread, ends it."""

    def __init__(self, *, allow_private: bool, max_body: int = MAX_BODY, agent: str = "ccb") -> None:
        self._allow_private = allow_private
        self._max_body = max_body
        self._agent = agent
        self._deadline = time.monotonic() + TIMEOUT_S
        self._socket: socket.socket | None = None
        self._stopped = False

    def stop(self) -> None:
        """End the request as soon as possible."""
        self._stopped = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def fetch(self, url: str) -> Page:
        """Return the page. Follow redirects on the same host only. Raise WebRefused."""
        place = read_url(url)
        for _ in range(_MAX_REDIRECTS + 1):
            page, target = self._hop(place)
            if not target:
                return page
            following = read_url(target)
            if not same_site(place.host, following.host) or (place.scheme, following.scheme) == ("https", "http"):
                return Page(place.url, page.status, page.reason, "", "", b"", redirect=following.url)
            place = following
        raise WebRefused(f"more than {_MAX_REDIRECTS} redirects")

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Page:
        """Send a JSON object and return the answer. A redirect is not followed. Raise WebRefused."""
        return self._hop(read_url(url), body, headers)[0]

    def _hop(
        self, place: WebPlace, sent: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[Page, str]:
        """Make one request: a POST if something is `sent`. Return the page, and where it sends to."""
        connection = http.client.HTTPConnection(place.host, place.port)
        try:
            self._socket = connection.sock = self._connected(place)
            connection.request(
                "GET" if sent is None else "POST",
                place.target,
                sent,
                {
                    "User-Agent": f"{self._agent} (+https://pypi.org/project/ccb/)",
                    "Accept": "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5",
                    "Accept-Encoding": "gzip, identity",
                    "Connection": "close",
                    **({} if sent is None else {"Content-Type": "application/json"}),
                    **(headers or {}),
                },
            )
            response = connection.getresponse()
            location = response.headers.get("Location", "")
            target = urljoin(place.url, location) if response.status in _MOVED and location else ""
            body, cut = (b"", False) if target else self._body(response)
            kind, charset = response.headers.get_content_type(), response.headers.get_content_charset("")
            return Page(place.url, response.status, response.reason or "", kind, charset or "", body, cut=cut), target
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
                plain = (
                    socket.create_connection((address, place.port), self._left())
                    if proxy is None
                    else tunnel(proxy, address, place.port, self._left())
                )
            except OSError as error:
                problem = error
                continue
            if place.scheme == "http":
                return plain
            import ssl

            try:
                return ssl.create_default_context().wrap_socket(plain, server_hostname=place.host)
            except BaseException:
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
