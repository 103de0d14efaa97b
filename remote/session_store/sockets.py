"""Where a bridge connects to a daemon: a socket file, else a name in memory (Linux: the abstract namespace). There, any
process can connect, so each end asks the kernel who the other one is. Imported before hello."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import time

_PREFIX = "ccb-%d-"
_TABLE = "/proc/net/unix"
_MAX_TABLE = 16 << 20
_LISTENS = 0x10000  # SO_ACCEPTCON
BACKLOG = 16


class Stranger(Exception):
    """A process that is not the session's daemon listens at its address. The text says whose it is."""


def memory_address(session: str) -> str:
    """Return the name of a session's socket in memory; "" where the system has no such names."""
    return "\0" + _PREFIX % os.geteuid() + session if sys.platform.startswith("linux") else ""


def in_memory(address: str) -> bool:
    return address.startswith("\0")


def sessions_in_memory() -> list[str]:
    """Return the sessions at whose name in memory a process listens; a connection shows whose it is."""
    prefix = "@" + _PREFIX % os.geteuid()
    found = []
    try:
        with open(_TABLE, encoding="utf-8", errors="replace") as file:
            for line in file.read(_MAX_TABLE).splitlines()[1:]:
                parts = line.split(None, 7)
                if len(parts) == 8 and parts[7].startswith(prefix) and int(parts[3], 16) & _LISTENS:
                    found.append(parts[7][len(prefix) :])
    except (OSError, ValueError):
        pass
    return found


def claim(address: str) -> int | None:
    """Bind a name in memory, which locks its session. Return the descriptor that holds it; None if it is taken."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        try:
            bound.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        return os.dup(bound.fileno())


def listen(address: str, claimed: int = -1) -> socket.socket:
    """Return a listening socket: the `claimed` descriptor of a name in memory, else a new file. Raise OSError."""
    if in_memory(address):
        listener = socket.socket(fileno=os.dup(claimed))
    else:
        try:
            os.unlink(address)
        except FileNotFoundError:
            pass
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if not in_memory(address):
            listener.bind(address)
            os.chmod(address, 0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, address) from None
    return listener


def connect(address: str, deadline: float) -> socket.socket | None:
    """Return a connection on which the hello has arrived, None if nobody listens or it is ending. Raise Stranger."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    why = ""
    try:
        client.settimeout(max(0.1, deadline - time.monotonic()))
        client.connect(address)
        why = stranger(client, address)
        if not why and client.recv(1, socket.MSG_PEEK):
            return client
    except OSError:
        pass
    client.close()
    if why:
        raise Stranger(why)
    return None


def stranger(peer: socket.socket, address: str) -> str:
    """Return whose the other end is, "" if it is trusted: only this user reaches the file of a socket."""
    if not in_memory(address):
        return ""
    pid, uid = peer_of(peer)
    if uid != os.geteuid():
        return "a process of another user (uid %d)" % uid
    ours, theirs = _pid_namespace("self"), _pid_namespace(str(pid))
    return "" if ours == theirs or not ours else "a process of another container (pid %d)" % pid


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return process and user of the other end (Linux)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return pid, uid


def _pid_namespace(pid: str) -> str:
    try:
        return os.readlink("/proc/%s/ns/pid" % pid)
    except OSError:
        return ""
