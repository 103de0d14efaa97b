"""Which URLs may be fetched, and which addresses may be connected to."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from ..dataclass import dataclass

MAX_URL = 2_000
_PORTS = {"http": 80, "https": 443}
_OF_A_SITE = ipaddress.ip_network("fec0::/10")
_OF_A_CLOUD = (ipaddress.ip_address("168.63.129.16"), ipaddress.ip_address("192.0.0.192"))
"""What is only reached inside: private networks of old (RFC 3879), and the servers of Azure and Oracle that give
virtual machines their configuration."""
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
    """Return the parts of a URL. Raise WebRefused unless it is a plain http or https URL."""
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
    return WebPlace(parts.scheme, host.rstrip("."), port or _PORTS[parts.scheme], _quoted(target))


def _quoted(target: str) -> str:
    from urllib.parse import quote

    return quote(target, safe="/?&=%+,;:@!$'()*~-._#[]|")


def same_site(one: str, other: str) -> bool:
    """Return whether two hosts are the same but for a `www.`."""
    return one.removeprefix("www.") == other.removeprefix("www.")


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet: no private, loopback, link-local, shared, multicast
    or reserved one, in whatever form it is written."""
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
    """Return the addresses of a host to which a connection may be made. Raise WebRefused if there is none: one private
    address among them refuses the host, because a name that has both is a trap."""
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise WebRefused(f"{place.host} cannot be resolved: {getattr(error, 'strerror', None) or error}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    private = [each for each in addresses if not is_public(each)]
    if private and not allow_private:
        raise WebRefused(
            f"{place.host} is at {private[0]}, which is no public address. Set webAllowPrivate to fetch from private "
            "networks"
        )
    return addresses
