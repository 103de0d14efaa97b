"""A TCP connection to a host, made while asyncssh is still being imported."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import ipaddress
import os
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import Unreachable
from ..ssh_config.host_config import HostConfig, Route

_BETWEEN_ATTEMPTS_S = 1.0
_SIOCGIFADDR = 0xC0206921 if sys.platform == "darwin" else 0x8915
_IPV6_BOUND_IF = 125  # macOS only


async def open_socket(config: HostConfig) -> socket.socket:
    """Return a connected socket. Raise Unreachable."""
    route = config.route
    where = f"{config.hostname} port {config.port}"
    addresses = await _addresses(config)
    last: OSError | TimeoutError = OSError("no address")
    for attempt in range(route.attempts):
        if attempt:
            await asyncio.sleep(_BETWEEN_ATTEMPTS_S)
        for family, _, proto, _, address in addresses:
            try:
                return await _connected(route, family, proto, address)
            except (OSError, TimeoutError) as error:
                last = error
    if isinstance(last, TimeoutError):
        raise Unreachable(
            f"{where} did not answer in {route.connect_timeout_s:.0f} s",
            evidence="Neither accepted nor refused: a firewall, a wrong address or a host that is down.",
            do="Check host and port. `-o ConnectTimeout=30` waits longer.",
        ) from last
    raise Unreachable(
        f"cannot reach {where}",
        evidence=_reason(last),
        do="Check that the host is up and its SSH server listens on that port.",
    ) from last


async def _addresses(config: HostConfig) -> list[tuple[Any, ...]]:
    family = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(config.route.family, socket.AF_UNSPEC)
    # A number needs no thread. One would run beside the import of asyncssh, and the first packet would wait for both.
    with suppress(socket.gaierror, UnicodeError):
        number = config.hostname.encode("ascii")  # as bytes: a text would load the codec for names
        return socket.getaddrinfo(number, config.port, family, socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    try:
        async with asyncio.timeout(config.route.connect_timeout_s):
            return await asyncio.get_running_loop().getaddrinfo(
                config.hostname, config.port, family=family, type=socket.SOCK_STREAM
            )
    except (socket.gaierror, UnicodeError) as error:
        raise Unreachable(
            f"the name {config.hostname} does not resolve",
            evidence=(error.strerror if isinstance(error, OSError) else "") or str(error),
            do="Check the spelling, or the network.",
        ) from error
    except TimeoutError:
        raise Unreachable(f"the name {config.hostname} did not resolve in time", do="Check the network.") from None


def _reason(error: OSError) -> str:
    """Return the system's text for `error`. asyncio replaces it when a connection fails."""
    text = error.strerror or str(error)
    return os.strerror(error.errno) if error.errno and text.startswith("Connect call failed") else text


async def _connected(route: Route, family: int, proto: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM, proto)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if route.bind_address:
            sock.bind((route.bind_address, 0))
        elif route.bind_interface:
            _bind_to_interface(sock, route.bind_interface)
        async with asyncio.timeout(route.connect_timeout_s):
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_to_interface(sock: socket.socket, name: str) -> None:
    """Bind `sock` to an address of the network interface `name` (BindInterface). Raise OSError.

    Like ssh, bind to the address and not to the device, so that routing stays the same.
    """
    try:
        if sock.family == socket.AF_INET:
            request = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, struct.pack("256s", os.fsencode(name)))
            sock.bind((socket.inet_ntoa(request[20:24]), 0))
        elif sys.platform == "darwin":  # this system has no list of addresses to read
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_BOUND_IF, socket.if_nametoindex(name))
        else:
            sock.bind((_ipv6_address(name), 0))
    except OSError as error:
        raise OSError(error.errno, f"BindInterface {name}: {error.strerror}") from error


def _ipv6_address(interface: str) -> str:
    """Return an IPv6 address of `interface`. Skip link-local addresses."""
    for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
        digits, *_, name = line.split()
        address = ipaddress.IPv6Address(int(digits, 16))
        if name == interface and not address.is_link_local:
            return str(address)
    raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
