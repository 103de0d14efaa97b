"""The state of the git repository of a session. Git reads it in a cage, because the repository's configuration can make
git run programs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ccb.tunnel.wire.dataclass import dataclass

from ..permissions.sandbox_mode import Cages
from ..system.host import Host
from .git import Git

_MAX_STATUS_CHARS = 2000
_RECENT_COMMITS = 5
_NO_COMMITS = "## No commits yet on "
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


async def git_state(cwd: str, host: Host, cages: Cages) -> GitState | None:
    """Return the state of the repository. None when there is no git or `cwd` is not in a repository. The five commands
    run at the same time, each with its own time limit, in the read-only cage where this host has one. Those that may
    start programs are left out if the repository's configuration names any."""
    git = Git(host, cages, cwd)
    if not git.available:
        return None
    why = await git.why_unsafe()
    asked = [command for command in _GIT_COMMANDS if not why or command[0] in _GIT_STARTS_NOTHING]
    outputs = await asyncio.gather(*(git.run(*command) for command in asked))
    found = {command[0]: output for command, output in zip(asked, outputs)}
    return _state({name: output for name, output in found.items() if output is not None}, why)


def _state(found: Mapping[str, str], why: str) -> GitState:
    """Return the state from what the commands printed, by their names. `why`: why git status did not run."""
    branch, refs, status, commits, user = (found.get(command[0], "") for command in _GIT_COMMANDS)
    status_lines = status.splitlines()
    return GitState(
        branch=(branch or _unborn_branch(status_lines)).strip(),
        main_branch=_main_branch(refs),
        status=_changes(status_lines) if "status" in found else _no_status(why),
        recent_commits=commits.strip()[:_MAX_STATUS_CHARS],
        user=user.strip()[:200],
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
