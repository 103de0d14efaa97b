"""Gathers the context of a session before the first prompt: machine, directory, git, instruction files.

It is gathered once, on the host where the files are. Nothing here fails: facts that cannot be determined are left
out."""

from __future__ import annotations

import asyncio
import datetime
import os
import platform
import pwd
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ..permissions.git.repository import why_unsafe
from ..system.process import child_environment, new_mark, start
from .instructions import InstructionFile, find_instructions

_GIT_SECONDS = 2.5
_MAX_GIT_BYTES = 1 << 20
_MAX_STATUS_CHARS = 2000
_RECENT_COMMITS = 5
_NO_COMMITS = "## No commits yet on "
_GIT_OPTIONS = (
    "--no-pager",
    *("-c", "core.fsmonitor=false"),
    *("-c", "safe.bareRepository=explicit"),  # a bare repository inside a clone would bring its own configuration
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "log.showSignature=false"),
)
_GIT_COMMANDS = (
    ("rev-parse", "--abbrev-ref", "HEAD"),
    (
        "for-each-ref",
        "--format=%(refname:short) %(symref:short)",
        "refs/heads",
        "refs/remotes/origin/HEAD",
        "--count=500",
    ),
    ("status", "--short", "--branch", "--untracked-files=normal", "--ignore-submodules=dirty"),
    ("log", "--oneline", "--no-decorate", "--no-color", "-n", str(_RECENT_COMMITS)),
    ("config", "--get", "user.name"),
)
_GIT_STARTS_NOTHING = ("rev-parse", "for-each-ref", "config")
"""Commands that start no program, whatever the repository's configuration names."""


@dataclass(frozen=True)
class GitState:
    """The state of a repository, as texts from git; "" where git printed none."""

    branch: str = ""
    main_branch: str = ""
    status: str = ""
    recent_commits: str = ""
    user: str = ""


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
    cwd: str, add_dirs: Sequence[str] = (), home: str = "", environ: dict[str, str] | None = None
) -> Context:
    """Return the context of a session in `cwd`, within a few seconds even if a command hangs."""
    environ = dict(os.environ) if environ is None else environ
    home = home or os.path.expanduser("~")
    loop = asyncio.get_running_loop()
    files, git = await asyncio.gather(loop.run_in_executor(None, find_instructions, cwd, home), git_state(cwd, environ))
    uname = platform.uname()
    return Context(
        cwd=cwd,
        add_dirs=tuple(add_dirs),
        platform=sys.platform,
        os_version=_os_version(uname),
        shell=os.path.basename(environ.get("SHELL", "")) or "sh",
        python=platform.python_version(),
        date=datetime.date.today().isoformat(),
        account=_account(),
        host=uname.node,
        has_rg=shutil.which("rg", path=environ.get("PATH")) is not None,
        is_repository=git is not None or _is_repository(cwd),
        git=git,
        instructions=tuple(files),
    )


def _os_version(uname: platform.uname_result) -> str:
    kernel = f"{uname.system} {uname.release} ({uname.machine})"
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


def _is_repository(cwd: str) -> bool:
    directory = os.path.realpath(cwd)
    while True:
        if os.path.exists(os.path.join(directory, ".git")):
            return True
        if directory == os.path.dirname(directory):
            return False
        directory = os.path.dirname(directory)


async def git_state(cwd: str, environ: dict[str, str]) -> GitState | None:
    """Return the state of the repository. None when there is no git or `cwd` is not in a repository. The five commands
    run at the same time, each with its own time limit."""
    git = shutil.which("git", path=environ.get("PATH"))
    if git is None:
        return None
    quiet = {
        **{name: value for name, value in child_environment(environ).items() if not name.startswith("GIT_")},
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C.UTF-8",
    }
    loop = asyncio.get_running_loop()
    home = environ.get("HOME") or os.path.expanduser("~")
    why = await loop.run_in_executor(None, lambda: why_unsafe(os.path.realpath(cwd), [os.path.realpath(cwd)], home))
    asked = [command for command in _GIT_COMMANDS if not why or command[0] in _GIT_STARTS_NOTHING]
    outputs = await asyncio.gather(*(_run([git, *_GIT_OPTIONS, *command], cwd, quiet) for command in asked))
    found = {command[0]: output for command, output in zip(asked, outputs)}
    branch, refs, status, commits, user = (found.get(command[0]) for command in _GIT_COMMANDS)
    if status is None and branch is None and not _is_repository(cwd):
        return None
    status_lines = (status or "").splitlines()
    return GitState(
        branch=(branch or _unborn_branch(status_lines)).strip(),
        main_branch=_main_branch(refs or ""),
        status=_changes(status_lines) if status is not None else _no_status(why),
        recent_commits=(commits or "").strip()[:_MAX_STATUS_CHARS],
        user=(user or "").strip()[:200],
    )


def _no_status(why: str) -> str:
    return f"(git status was not asked: {why})" if why else "(git status did not answer)"


def _unborn_branch(status_lines: Sequence[str]) -> str:
    """Return the branch of a repository without commits, "" if it has any."""
    first = status_lines[0] if status_lines else ""
    return first[len(_NO_COMMITS) :] if first.startswith(_NO_COMMITS) else ""


def _changes(status_lines: Sequence[str]) -> str:
    """Return the output of `git status` without the line about the branch, cut to its limit."""
    return _cut("\n".join(line for line in status_lines if not line.startswith("## ")))


def _main_branch(refs: str) -> str:
    """Return the branch that origin's HEAD names, or else a local branch with a usual name."""
    names = dict(line.partition(" ")[::2] for line in refs.splitlines())
    remote = names.get("origin/HEAD") or names.get("origin") or ""
    if remote.startswith("origin/"):
        return remote[len("origin/") :]
    return next((name for name in ("main", "master", "trunk", "develop") if name in names), "")


def _cut(status: str) -> str:
    """Return the status within its limit, cut at a line end."""
    if len(status) <= _MAX_STATUS_CHARS:
        return status
    kept = status[:_MAX_STATUS_CHARS].rpartition("\n")[0]
    missing = status[len(kept) :].strip("\n").count("\n") + 1
    return f"{kept}\n({missing} more lines were cut; run `git status` to see them all)"


async def _run(argv: Sequence[str], cwd: str, environ: dict[str, str]) -> str | None:
    """Return the standard output of a command, up to a limit; None when it failed or did not end in time."""
    pieces: list[bytes] = []

    def take(data: bytes) -> None:
        if sum(map(len, pieces)) <= _MAX_GIT_BYTES:
            pieces.append(data)

    try:
        process = start(["sh", "-c", 'exec "$@" 2>/dev/null', "sh", *argv], cwd, environ, take, new_mark())
    except OSError:
        return None
    try:
        code = await asyncio.wait_for(process.wait(), _GIT_SECONDS)
    except asyncio.TimeoutError:
        return None
    finally:
        await process.stop()
    return b"".join(pieces).decode("utf-8", "replace") if code == 0 else None
