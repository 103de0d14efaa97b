"""What a session leaves on a host: processes, runtime files, files of ccb."""

from __future__ import annotations

import asyncio
import contextlib
import pwd
import re
import time
from pathlib import Path

import psutil
from tests.support.hosts.sshd import HostUser
from tests.support.machine.processes import processes_of

_NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32,64}|(?<=/outputs/)\d{4}")


async def left_by(user: HostUser) -> list[str]:
    """What is still there of a session that has ended, after some patience."""
    runtime = Path(f"/tmp/ccb-{pwd.getpwnam(user.name).pw_uid}")

    def found() -> list[str]:
        files = (
            [str(path) for path in runtime.glob("*") if path.suffix in (".sock", ".lock")] if runtime.exists() else []
        )
        return files + [f"{process.pid} {_name(process)}" for process in processes_of(user)]

    deadline = time.monotonic() + 45  # an unused worker waits for 20
    while found() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return found()


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return "(just ended)"


def kept_by(user: HostUser) -> set[str]:
    """Files of ccb in the home and in the runtime directory."""
    runtime = Path(f"/tmp/ccb-{pwd.getpwnam(user.name).pw_uid}")
    found = {f"run/{path.relative_to(runtime)}" for path in runtime.rglob("*") if path.is_file()}
    for path in user.home.rglob("*"):
        inside = path.relative_to(user.home)
        if path.is_file() and "ccb" in inside.parts:
            found.add(f"~/{inside}")
    return {_NAMES.sub("*", name) for name in found}


def kill_worker(user: HostUser) -> None:
    """End the user's daemons as the kernel does it when memory is short."""
    for each in processes_of(user):
        with contextlib.suppress(psutil.NoSuchProcess):
            if each.name() == "ccb":
                each.kill()
