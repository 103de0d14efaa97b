"""The locks that decide whose daemon runs a session: lock file, journal or socket. Imported before hello."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal

from . import process_identity
from .refusal import HostRefusal

_OWNER_BYTES = 512  # size of a lock file; reserved before the daemon starts, so that a full disk is noticed in time


def lock_file(path: str) -> int | None:
    """Lock the lock file of a session. Return its descriptor, which holds the lock; None when a live daemon has it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            if not _lock(fd):
                os.close(fd)
                return None
        except OSError:
            os.close(fd)
            raise
        try:
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                return fd
        except FileNotFoundError:
            pass
        os.close(fd)  # an ending daemon removed the file after it was opened here


def lock_journal(path: str) -> tuple[int, bool]:
    """Lock a journal. Return the descriptor (-1 without locks) and whether another process has the lock."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        return fd, not _lock(fd)
    except OSError:
        os.close(fd)
        return -1, False


def _lock(fd: int) -> bool:
    """Return whether the lock was taken. Raise OSError where the file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def reserve_owner(lock: int) -> None:
    os.write(lock, b" " * _OWNER_BYTES)


def write_owner(lock: int, owner: dict[str, object]) -> None:
    os.pwrite(lock, json.dumps(owner).encode().ljust(_OWNER_BYTES), 0)


def owner_of(state: str) -> dict[str, object]:
    from .session_registry import read_summary

    return read_summary(state)


def check_host(state: str) -> None:
    """Raise HostRefusal when the daemon of a session may live on another host that shares this home."""
    host = process_identity.elsewhere(owner_of(state))
    if host:
        raise _kept_elsewhere(host)


def check_owner(owner: dict[str, object]) -> None:
    """Raise HostRefusal when the daemon that holds a session lives in another container of this machine."""
    host = owner.get("hostname")
    if host not in (None, os.uname().nodename) and not process_identity.is_alive(owner):
        raise _kept_elsewhere(str(host))


def _kept_elsewhere(host: str) -> HostRefusal:
    text = "the session is kept by a worker on %s, which shares this home" % host
    return HostRefusal("in_use", text, {"host": host, "do": "Go on with it there, or in a copy: --fork-session."})


def in_use(session: str) -> HostRefusal:
    return HostRefusal("in_use", "Session ID %s is already in use." % session, {})


def wake_owner(owner: dict[str, object], sent: set[int], *, end: bool) -> None:
    """Ask a daemon that has lost its socket to listen again, or with `end` to leave, unless that is in `sent`."""
    number = signal.SIGTERM if end else signal.SIGHUP
    pid = owner.get("pid")
    if number not in sent and isinstance(pid, int) and process_identity.is_alive(owner):
        sent.add(number)
        try:
            os.kill(pid, number)
        except OSError:
            pass
