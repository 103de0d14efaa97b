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


def check_owner(owner: dict[str, object]) -> None:
    """Raise HostRefusal when the daemon that holds a session lives on another node, or in another container."""
    if elsewhere(owner) or (owner.get("hostname") not in (None, os.uname().nodename) and not is_alive(owner)):
        raise kept_elsewhere(owner)


def kept_elsewhere(owner: dict[str, object]) -> HostRefusal:
    """Return the refusal of a session that another machine or container owns. `boot` and what follows are in it for
    another machine only: the laptop can go there."""
    host = elsewhere(owner) or str(owner.get("hostname"))
    data: dict[str, object] = {"host": host, "do": "Go on with it there, or in a copy: --fork-session."}
    if owner.get("boot") != boot_id():
        data.update(boot=str(owner.get("boot") or ""), job=str(owner.get("job") or ""))
    return HostRefusal("in_use", "the session is kept by a worker on %s, which shares this home" % host, data)


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
    """Return what names this process: its node, pid and start time."""
    return {**own_node(), "pid": os.getpid(), "started": start_time()}


def own_node() -> dict[str, object]:
    """Return what names this machine: host and boot; in a job of Slurm also its number and node."""
    host, job = os.uname().nodename, os.environ.get("SLURM_JOB_ID")
    node = {"node": os.environ.get("SLURMD_NODENAME") or host, "job": job} if job else {}
    return {"hostname": host, "boot": boot_id(), **node}


def elsewhere(owner: dict[str, object], gone: str = "") -> str:
    """Return the name of the other machine on which the process with these fields runs; "" for this one or none, or one
    whose boot a person says to be `gone`."""
    host, boot = owner.get("hostname"), owner.get("boot")
    here = boot in (boot_id(), gone or boot_id()) or host == os.uname().nodename  # in this boot or an earlier one
    name = owner.get("node") or host  # srun knows a node by the name that Slurm has given it
    return name if "boot" in owner and not here and isinstance(name, str) else ""


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
