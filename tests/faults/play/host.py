"""What a session leaves on a host: processes, runtime files, files of ccb, and the worktrees of its agents."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
from tests.faults.play.outcome import text_of
from tests.support.hosts.sshd import HostUser
from tests.support.machine.processes import processes_of

_NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32,64}|(?<=/outputs/)\d{4}|(?<=/owner\.)\d+")


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
    """Its name, when it began and the home that it was given: uids are used again, so it may be another test's."""
    try:
        began = time.strftime("%H:%M:%S", time.localtime(process.create_time()))
        return f"{process.name()} since {began}, HOME {process.environ().get('HOME')}"
    except psutil.NoSuchProcess:
        return "(just ended)"


def kept_by(user: HostUser) -> set[str]:
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


_TREE = re.compile(r"do-(\w+)-[0-9a-f]{8}")


def make_repository(user: HostUser, files: Iterable[str]) -> None:
    """Make a repository of the user's home, with one commit of these files."""
    _git(user, "init", "-q", "-b", "main")
    _git(user, "add", *files)
    _git(user, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "one")


def trees_of(user: HostUser) -> dict[str, str]:
    """What agents have left in their worktrees, by the path of the worktree; "no branch" where git knows none."""
    place = user.home / ".claude" / "worktrees"
    known = _git(user, "worktree", "list", "--porcelain")
    branches = _git(user, "branch", "--list", "worktree/*", "--format=%(refname:short)").split()
    found = {}
    for path in sorted(each for each in place.glob("*") if each.is_dir()):
        whole = f"branch refs/heads/worktree/{path.name}\n" in known and f"worktree/{path.name}" in branches
        found[str(path)] = text_of(path / "left.txt") if whole else "no branch"
    without = {f"{place}/{branch.partition('/')[2]}" for branch in branches} - set(found)
    return found | dict.fromkeys(without, "no worktree")


def agent_of(path: str) -> str:
    match = _TREE.fullmatch(os.path.basename(path))
    return match[1] if match else path


def _git(user: HostUser, *words: str) -> str:
    owner = pwd.getpwnam(user.name)
    env = {"PATH": os.environ["PATH"], "HOME": str(user.home)}
    argv = ["git", *words]
    made = subprocess.run(
        argv, cwd=user.home, env=env, user=owner.pw_uid, group=owner.pw_gid, check=True, capture_output=True, text=True
    )
    return made.stdout
