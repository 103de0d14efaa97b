"""A TCP connection to a host, made while the rest of the program is still being imported."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

from ..errors import Unreachable
from ..ssh_config.resolve import HostConfig
from .interface import bind_to_interface

_BETWEEN_ATTEMPTS_S = 1.0


async def open_socket(config: HostConfig) -> socket.socket:
    """A connected socket. Raises Unreachable."""
    family = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(config.family, socket.AF_UNSPEC)
    loop = asyncio.get_running_loop()
    where = f"{config.hostname} port {config.port}"
    try:
        found = await asyncio.wait_for(
            loop.getaddrinfo(config.hostname, config.port, family=family, type=socket.SOCK_STREAM),
            config.connect_timeout_s,
        )
    except (socket.gaierror, UnicodeError) as error:
        raise Unreachable(
            f"the name {config.hostname} does not resolve",
            evidence=(error.strerror if isinstance(error, OSError) else "") or str(error),
            do="Check the spelling, or the network.",
        ) from error
    except TimeoutError:
        raise Unreachable(f"the name {config.hostname} did not resolve in time", do="Check the network.") from None
    last: OSError | TimeoutError = OSError("no address")
    for attempt in range(config.attempts):
        if attempt:
            await asyncio.sleep(_BETWEEN_ATTEMPTS_S)
        for family, _, proto, _, address in found:
            try:
                return await _connected(config, family, proto, address)
            except (OSError, TimeoutError) as error:
                last = error
    if isinstance(last, TimeoutError):
        raise Unreachable(
            f"{where} did not answer in {config.connect_timeout_s:.0f} s",
            evidence="Neither accepted nor refused: a firewall, a wrong address or a host that is down.",
            do="Check host and port; `-o ConnectTimeout=30` waits longer.",
        ) from last
    raise Unreachable(
        f"cannot reach {where}",
        evidence=_reason(last),
        do="Check that the host is up and its SSH server listens on that port.",
    ) from last


def _reason(error: OSError) -> str:
    """What the system says; asyncio puts words of its own over it when a connection fails."""
    text = error.strerror or str(error)
    return os.strerror(error.errno) if error.errno and text.startswith("Connect call failed") else text


async def _connected(config: HostConfig, family: int, proto: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM, proto)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if config.bind_address:
            sock.bind((config.bind_address, 0))
        elif config.bind_interface:
            bind_to_interface(sock, config.bind_interface)
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(sock, address), config.connect_timeout_s)
    except BaseException:
        sock.close()
        raise
    return sock
