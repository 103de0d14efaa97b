"""The identity of a process: pid, host, boot id and start time, as pids are reused. Imported before hello."""

from __future__ import annotations

import os


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
