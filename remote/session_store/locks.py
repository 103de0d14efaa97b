"""The locks that decide whose daemon runs a session: lock file, journal or socket. The identity of the process that
holds one: pid, host, boot id and start time, as pids are reused. Imported before hello."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal

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


def check_host(owner: dict[str, object]) -> None:
    """Raise HostRefusal when the daemon of a session may live on another host that shares this home."""
    host = elsewhere(owner)
    if host:
        raise _kept_elsewhere(host)


def check_owner(owner: dict[str, object]) -> None:
    """Raise HostRefusal when the daemon that holds a session lives in another container of this machine."""
    host = owner.get("hostname")
    if host not in (None, os.uname().nodename) and not is_alive(owner):
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
    if number not in sent and isinstance(pid, int) and is_alive(owner):
        sent.add(number)
        try:
            os.kill(pid, number)
        except OSError:
            pass


def boot_id() -> str:
    """Return the id of the current boot; "" where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_time(pid: int | str = "self") -> str:
    """Return the start time of a process from /proc; "" when it does not exist, is a zombie, or there is no /proc."""
    try:
        with open("/proc/%s/stat" % pid, encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
            return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


def own_identity() -> dict[str, object]:
    return {"hostname": os.uname().nodename, "boot": boot_id(), "pid": os.getpid(), "started": start_time()}


def elsewhere(owner: dict[str, object]) -> str:
    """Return the name of the other machine on which the process with these fields runs; "" for this one or none."""
    host = owner.get("hostname")
    here = owner.get("boot") == boot_id() or host == os.uname().nodename  # in this boot or an earlier one
    return host if "pid" in owner and not here and isinstance(host, str) else ""


def is_alive(owner: dict[str, object]) -> bool:
    pid = owner.get("pid")
    if not isinstance(pid, int) or owner.get("boot") != boot_id():
        return False
    if os.path.isdir("/proc/self"):
        return bool(owner.get("started")) and start_time(pid) == owner.get("started")
    return exists(pid)


def exists(pid: int) -> bool:
    """Return whether a process runs, and is no zombie: not every container has an init that reaps it."""
    if os.path.isdir("/proc/self"):
        return bool(start_time(pid))
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
