"""How a bridge and the daemon of a session meet: at a socket file, or at a name in memory where no file can be made.

A name (Linux: the abstract namespace) belongs to whoever binds it first, and every process of the network namespace can connect
to it. So it is not trusted: each end asks the kernel who the other one is. A bound name is also the session's lock: it is
free again when the last process that holds it is gone.

On the way to hello, so it imports next to nothing.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import time

_PREFIX = "ccb-%d-"
_TABLE = "/proc/net/unix"
_MOST_TABLE = 16 << 20
_LISTENS = 0x10000  # SO_ACCEPTCON
_BACKLOG = 16


class Stranger(Exception):
    """Somebody else's process is where the session's should be."""


def memory_address(session: str) -> str:
    """The name of a session's socket in memory, "" where the system has no such names."""
    return "\0" + _PREFIX % os.geteuid() + session if sys.platform.startswith("linux") else ""


def in_memory(address: str) -> bool:
    """Whether it is a name and no file."""
    return address.startswith("\0")


def sessions_in_memory() -> list[str]:
    """The ids that somebody listens for; whether it is a daemon of ours shows only who connects. Empty where there is no /proc."""
    prefix = "@" + _PREFIX % os.geteuid()
    found = []
    try:
        with open(_TABLE, encoding="utf-8", errors="replace") as file:
            for line in file.read(_MOST_TABLE).splitlines()[1:]:
                parts = line.split(None, 7)
                if len(parts) == 8 and parts[7].startswith(prefix) and int(parts[3], 16) & _LISTENS:
                    found.append(parts[7][len(prefix) :])
    except (OSError, ValueError):
        pass
    return found


def claim(address: str) -> int | None:
    """Bind a name and so lock its session; None when somebody has it. It is held while this file or a copy of it is open."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        try:
            bound.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        return os.dup(bound.fileno())


def listen(address: str, claimed: int = -1) -> socket.socket:
    """A listening socket; for a name the one that was `claimed`. A file that lies there is replaced. Raises OSError."""
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
            _bind(listener, address)
            os.chmod(address, 0o600)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _bind(listener: socket.socket, path: str) -> None:
    try:
        listener.bind(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def listen_as_this_process(listener: socket.socket) -> None:
    """Who connects is told of the process that called `listen` last."""
    listener.listen(_BACKLOG)


def connect(address: str, deadline: float) -> socket.socket | None:
    """A connection on which the hello is waiting; None when nobody listens, or who did is gone (a process that was killed
    holds its lock and its socket a little longer than its connections). Raises Stranger.
    """
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(max(0.1, deadline - time.monotonic()))
        client.connect(address)
        why = stranger(client, address)
        if why:
            raise Stranger(why)
        if client.recv(1, socket.MSG_PEEK):
            return client
    except OSError:
        pass
    except Stranger:
        client.close()
        raise
    client.close()
    return None


def stranger(peer: socket.socket, address: str) -> str:
    """Who is at the other end if it must not be: another user, or a process of another container, whose root is not ours. "" when
    it may be there: a file is reached by those only who may enter its directory."""
    if not in_memory(address):
        return ""
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid != os.geteuid():
        return "a process of another user (uid %d)" % uid
    ours, theirs = _pid_namespace("self"), _pid_namespace(str(pid))
    return "" if ours == theirs or not ours else "a process of another container (pid %d)" % pid


def _pid_namespace(pid: str) -> str:
    """ "" when it is not told: there is no /proc, or no such process in it."""
    try:
        return os.readlink("/proc/%s/ns/pid" % pid)
    except OSError:
        return ""
