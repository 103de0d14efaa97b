"""HTTP proxies of the environment: pages are fetched through a tunnel (CONNECT) to the address that was checked."""

from __future__ import annotations

import base64
import os
import socket
from urllib.parse import SplitResult, unquote, urlsplit

from .addresses import WebPlace, WebRefused

_MAX_HEAD = 16_384


def proxy_for(place: WebPlace) -> SplitResult | None:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names for a URL, unless NO_PROXY excepts its host.
    Raise WebRefused for a proxy of another kind than HTTP."""
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
    """Return a connection to a host or an address through the proxy. Raise OSError or WebRefused."""
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
            raise WebRefused(
                f"the proxy refuses {where}: {status!r}. If it wants names and not addresses, set webAllowPrivate: "
                "then the proxy alone decides where a name leads"
            )
    except BaseException:
        made.close()
        raise
    return made
