"""Gathers the context of a session before the first prompt: machine, directory, git, instruction files.

It is gathered once, on the host where the files are. Nothing here fails: facts that cannot be determined are left
out."""

from __future__ import annotations

import asyncio
import datetime
import os
import pwd
import sys
from collections.abc import Collection, Sequence

from ccb.tunnel.wire.dataclass import dataclass

from ..permissions.sandbox_mode import Cages
from ..system.host import Host
from ..system.owners import repository_top
from .git_state import GitState, git_state
from .instructions import SCOPES, InstructionFile, find_instructions


@dataclass(frozen=True)
class Context:
    """The facts about its environment that the model is told. `date` is the host's, in ISO 8601. `git` is None outside
    of a repository or without git."""

    cwd: str
    add_dirs: tuple[str, ...] = ()
    platform: str = ""
    os_version: str = ""
    shell: str = ""
    python: str = ""
    date: str = ""
    account: str = ""
    host: str = ""
    has_rg: bool = False
    is_repository: bool = False
    git: GitState | None = None
    instructions: tuple[InstructionFile, ...] = ()


async def gather(
    cwd: str, add_dirs: Sequence[str], host: Host, cages: Cages, sources: Collection[str] = SCOPES
) -> Context:
    """Return the context of a session in `cwd`, within a few seconds even if a command hangs. `sources` are the scopes
    of the instruction files that count."""
    environ, loop = cages.environ, asyncio.get_running_loop()
    await loop.run_in_executor(None, cages.probe)  # the first call takes a while
    files, git = await asyncio.gather(
        loop.run_in_executor(None, find_instructions, cwd, cages.home, sources), git_state(cwd, host, cages)
    )
    uname = os.uname()
    return Context(
        cwd=cwd,
        add_dirs=tuple(add_dirs),
        platform=sys.platform,
        os_version=_os_version(uname),
        shell=os.path.basename(environ.get("SHELL", "")) or "sh",
        python=sys.version.split()[0],
        date=datetime.date.today().isoformat(),
        account=_account(),
        host=uname.nodename,
        has_rg=host.which("rg") is not None,
        is_repository=git is not None or repository_top(cwd) != "",
        git=git,
        instructions=tuple(files),
    )


def _os_version(uname: os.uname_result) -> str:
    kernel = f"{uname.sysname} {uname.release} ({uname.machine})"
    name = ""
    try:
        with open("/etc/os-release", encoding="utf-8", errors="replace") as file:
            for line in file.read(20_000).splitlines():
                if line.startswith("PRETTY_NAME="):
                    name = line.partition("=")[2].strip("\"' ")
    except OSError:
        pass
    return f"{name}, {kernel}" if name else kernel


def _account() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
