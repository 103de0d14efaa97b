"""What a session knows about its surroundings before the first prompt: machine, directory, git, instruction files.

Gathered once, on the host where the files are. Nothing here fails: what cannot be found out is left out."""

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

from ..system.process import child_environment, new_mark, start
from .instructions import InstructionFile, find_instructions

_GIT_SECONDS = 2.5
_MOST_GIT_BYTES = 1 << 20
_MOST_STATUS_CHARS = 2000
_RECENT_COMMITS = 5


@dataclass(frozen=True)
class GitState:
    """Texts as git gives them; empty where it gave none."""

    branch: str = ""
    main_branch: str = ""
    status: str = ""
    recent_commits: str = ""
    user: str = ""


@dataclass(frozen=True)
class Context:
    """`date` is the host's, ISO 8601. `git` is None outside a repository or without git."""

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
    """The context of a session in `cwd`. Takes at most a few seconds, whatever hangs."""
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
    """Five questions at once, each with its own time limit. None when git is absent or this is no repository."""
    git = shutil.which("git", path=environ.get("PATH"))
    if git is None:
        return None
    quiet = {
        **{name: value for name, value in child_environment(environ).items() if not name.startswith("GIT_")},
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C.UTF-8",
    }
    base = [
        git,
        "--no-pager",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "safe.bareRepository=explicit",  # one among the files of a clone would bring a configuration of its own
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "log.showSignature=false",
    ]
    questions = (
        ["rev-parse", "--abbrev-ref", "HEAD"],
        [
            "for-each-ref",
            "--format=%(refname:short) %(symref:short)",
            "refs/heads",
            "refs/remotes/origin/HEAD",
            "--count=500",
        ],
        ["status", "--short", "--branch", "--untracked-files=normal", "--ignore-submodules=dirty"],
        ["log", "--oneline", "--no-decorate", "--no-color", "-n", str(_RECENT_COMMITS)],
        ["config", "--get", "user.name"],
    )
    answers = await asyncio.gather(*(_run([*base, *question], cwd, quiet) for question in questions))
    branch, refs, status, commits, user = answers
    if status is None and branch is None and not _is_repository(cwd):
        return None
    lines = (status or "").splitlines()
    if not branch and lines and lines[0].startswith("## No commits yet on "):
        branch = lines[0][len("## No commits yet on ") :]
    changes = "\n".join(line for line in lines if not line.startswith("## "))
    return GitState(
        branch=(branch or "").strip(),
        main_branch=_main_branch(refs or ""),
        status=_cut(changes) if status is not None else "(git status did not answer)",
        recent_commits=(commits or "").strip()[:_MOST_STATUS_CHARS],
        user=(user or "").strip()[:200],
    )


def _main_branch(refs: str) -> str:
    names = dict(line.partition(" ")[::2] for line in refs.splitlines())
    remote = names.get("origin/HEAD") or names.get("origin") or ""
    if remote.startswith("origin/"):
        return remote[len("origin/") :]
    return next((name for name in ("main", "master", "trunk", "develop") if name in names), "")


def _cut(status: str) -> str:
    if len(status) <= _MOST_STATUS_CHARS:
        return status
    kept = status[:_MOST_STATUS_CHARS].rpartition("\n")[0]
    missing = status[len(kept) :].strip("\n").count("\n") + 1
    return f"{kept}\n({missing} more lines were cut; run `git status` to see them all)"


async def _run(argv: Sequence[str], cwd: str, environ: dict[str, str]) -> str | None:
    """Standard output, or None when the command failed, hung or said too much."""
    pieces: list[bytes] = []

    def take(data: bytes) -> None:
        if sum(map(len, pieces)) <= _MOST_GIT_BYTES:
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
