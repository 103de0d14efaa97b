"""Which process on which machine: pids and host names are used again, together with boot id and start time they are not.

On the way to hello, so it imports next to nothing.
"""

from __future__ import annotations

import os


def boot_id() -> str:
    """Of this boot of this machine; "" where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_time(pid: int | str = "self") -> str:
    """Field 22 of /proc/PID/stat; "" when there is no such process (or it is dead and nobody has reaped it), or no /proc."""
    try:
        with open("/proc/%s/stat" % pid, encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
            return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


def own_identity() -> dict[str, object]:
    """The fields that name this process."""
    return {"hostname": os.uname().nodename, "boot": boot_id(), "pid": os.getpid(), "started": start_time()}


def on_this_machine(owner: dict[str, object]) -> bool:
    """Whether a process with these fields was one of this machine, in this boot or an earlier one."""
    return owner.get("boot") == boot_id() or owner.get("hostname") == os.uname().nodename


def elsewhere(owner: dict[str, object]) -> str:
    """The other machine whose process these fields name; "" when they name none, or no process."""
    host = owner.get("hostname")
    if "pid" not in owner or on_this_machine(owner) or not isinstance(host, str):
        return ""
    return host


def is_alive(owner: dict[str, object]) -> bool:
    """Whether the process with these fields lives here."""
    pid = owner.get("pid")
    if not isinstance(pid, int) or owner.get("boot") != boot_id():
        return False
    if os.path.isdir("/proc/self"):
        return bool(owner.get("started")) and start_time(pid) == owner.get("started")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
