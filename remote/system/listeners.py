"""The ports on which a process and what it has started listen, and whose a connection is, as Linux tells them."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator

from ccb.tunnel.wire.process_tree import descendants

from ..sandbox.running import name_of

MAX_LISTENERS = 100
NOBODY = -1
_LISTEN = "0A"  # the state of a socket that listens, in /proc/net/tcp (Documentation/networking/proc_net_tcp.rst)
_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_LOOPBACKS = ("0100007F", "0" * 24 + "01000000", "0" * 16 + "FFFF00000100007F")
_ANY = ("0" * 8, "0" * 32)
_URL = re.compile(r"\bhttps?://(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\]):([0-9]{1,5})\b")


def listeners_below(top: int) -> dict[int, str]:
    """Return the ports on which descendants of a process listen, with their programs; none where there is no /proc. No
    other process is looked at, and the host's table of sockets, which may be long, only if they have any."""
    owners: dict[str, int] = {}
    for pid in descendants(top):
        for inode in _sockets_of(pid):
            owners.setdefault(inode, pid)
    found = {port: owners[inode] for inode, port in _listening_sockets() if inode in owners} if owners else {}
    return {port: name_of(found[port]) for port in sorted(found)[:MAX_LISTENERS]}


def can_be_read() -> bool:
    return os.path.exists(_TABLES[0])


def listeners_named(outputs: Iterable[tuple[str, str]]) -> dict[int, str]:
    """Return the ports of this host whose URLs commands have printed, for a system that does not tell who listens.
    `outputs` are what commands are called, each with the end of its output."""
    found: dict[int, str] = {}
    for name, text in outputs:
        for digits in _URL.findall(text):
            if 0 < int(digits) < 65536:
                found.setdefault(int(digits), name)
    return {port: found[port] for port in sorted(found)[:MAX_LISTENERS]}


def owner_of_connection(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Return the user whose process has connected over the IPv4 loopback, None where the system does not tell. One that
    has closed its end is NOBODY: the system names root then."""
    ends = ["%08X:%04X" % (int.from_bytes(socket.inet_aton(ip), sys.byteorder), port) for ip, port in (client, server)]
    try:
        with open(_TABLES[0], encoding="ascii") as file:
            found = [fields for fields in map(str.split, file) if fields[1:3] == ends and len(fields) > 9]
    except OSError:
        return None
    return int(found[0][7]) if found and found[0][9] != "0" else NOBODY


def _listening_sockets() -> Iterator[tuple[str, int]]:
    """Yield inode and port of each socket that listens where the loopback reaches it."""
    for table in _TABLES:
        with contextlib.suppress(OSError), open(table, encoding="ascii") as file:
            yield from _rows(file)


def _rows(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            if address in _LOOPBACKS or address in _ANY:
                yield fields[9], int(port, 16)


def _sockets_of(pid: int) -> Iterator[str]:
    """Yield the inodes of the sockets that a process has open."""
    directory = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):  # it has ended, or belongs to another user
        for name in os.listdir(directory):
            with contextlib.suppress(OSError):
                target = os.readlink(f"{directory}/{name}")
                if target.startswith("socket:["):
                    yield target[8:-1]
