"""BindInterface: an address of a network interface as the source of a connection."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
import sys
from pathlib import Path

_GET_ADDRESS = 0xC0206921 if sys.platform == "darwin" else 0x8915  # SIOCGIFADDR
_BOUND_IF_6 = 125  # IPV6_BOUND_IF of macOS, which has no list of addresses to read


def bind_to_interface(sock: socket.socket, name: str) -> None:
    """Give `sock` its source as ssh does: by the address, so the route stays what it is. Raises OSError."""
    try:
        if sock.family == socket.AF_INET:
            request = fcntl.ioctl(sock.fileno(), _GET_ADDRESS, struct.pack("256s", os.fsencode(name)))
            sock.bind((socket.inet_ntoa(request[20:24]), 0))
        elif sys.platform == "darwin":
            sock.setsockopt(socket.IPPROTO_IPV6, _BOUND_IF_6, socket.if_nametoindex(name))
        else:
            sock.bind((_address_6(name), 0))
    except OSError as error:
        raise OSError(error.errno, f"BindInterface {name}: {error.strerror}") from error


def _address_6(name: str) -> str:
    """Not one that counts on its link only."""
    for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
        digits, *_, its = line.split()
        address = ipaddress.IPv6Address(int(digits, 16))
        if its == name and not address.is_link_local:
            return str(address)
    raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
