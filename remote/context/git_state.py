"""Git, run in a cage, and what it says of the repository: branch, status, recent commits."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import replace

from ..permissions.modes import Cages
from ..sandbox.outliving import read_regular
from ..system.deadline import in_thread
from ..system.host import Host
from ..system.owners import repository_top
from ..system.process import LIMITED

_MAX_BYTES = 4096
_SHORT_HASH = 9
_REF, _LINK = "ref: refs/heads/", "gitdir: "


def current_branch(cwd: str) -> str:
    """Return the checked-out branch, the start of the commit's hash without one, and "" outside of a repository."""
    directory = repository_top(cwd)
    if not directory:
        return ""
    dot_git = os.path.join(directory, ".git")
    linked = _first_line(dot_git)  # in a worktree and a submodule, .git is a file that names the directory
    if linked.startswith(_LINK):
        dot_git = os.path.join(directory, linked[len(_LINK) :])
    head = _first_line(os.path.join(dot_git, "HEAD"))
    return head[len(_REF) :] if head.startswith(_REF) else head[:_SHORT_HASH]


def _first_line(path: str) -> str:
    try:
        return read_regular(path, _MAX_BYTES).decode("utf-8", "replace").partition("\n")[0].strip()
    except OSError:
        return ""


_SECONDS = 2.5
_GIT_MAX_BYTES = 1 << 20
_OPTIONS = (
    "--no-pager",
    *("-c", "core.fsmonitor=false"),
    *("-c", "safe.bareRepository=explicit"),  # a bare repository inside a clone would bring its own configuration
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "log.showSignature=false"),
)
_CEILING = "GIT_CEILING_DIRECTORIES"  # git looks for a repository no further up than ccb
_NAME = re.compile(r"GIT_[A-Za-z0-9_]+")
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C.UTF-8"}


class Git:
    """Git in the read-only cage, but for `write`. Ask `why_unsafe` before commands that start configured programs."""

    def __init__(self, host: Host, cages: Cages, cwd: str, write: Sequence[str] = ()) -> None:
        self._program, self._shell = host.which("git"), host.which("sh")
        self._host = host
        self._cwd = cwd
        self._top = repository_top(cwd)
        self._home = cages.home
        self._environ = cages.environ
        cage = cages.read_only([cwd]) if self.available else None
        self._cage = cage if cage is None else replace(cage, write=tuple(write))

    @property
    def available(self) -> bool:
        """Whether there is a git, and the directory is in a repository."""
        return self._program is not None and self._shell is not None and self._top != ""

    async def why_unsafe(self) -> str:
        """Return why git may run a program that the repository names, "" if it does not."""
        from ..permissions.git_repositories import why_unsafe  # imports much

        real, strict = os.path.realpath(self._cwd), self._cage is None
        return await in_thread(why_unsafe, real, [real], self._home, strict)

    async def run(self, *command: str) -> str | None:
        """Return the standard output of a command, up to a limit; None when it failed or did not end in time."""
        code, output = await self.end(command)
        return output if code == 0 else None

    async def end(
        self, command: Sequence[str], seconds: float = 0, errors: str = "/dev/null"
    ) -> tuple[int | None, str]:
        """Return the exit code of a command and its output, up to a limit. The code is None when it did not end in
        time or could not start. `errors` is where its errors go, `&1` for the output."""
        steering = [name for name in self._environ if _NAME.fullmatch(name) and name not in (_CEILING, *_QUIET)]
        unset = f"unset {' '.join(steering)}\n" if steering else ""
        script = f'{LIMITED}{unset}exec "$@" 2>{errors}'
        argv = [str(self._shell), "-c", script, "sh", str(self._program), *_OPTIONS, *command]
        env, seconds = {**_QUIET, _CEILING: os.path.dirname(self._top).rstrip(os.sep)}, seconds or _SECONDS
        try:
            code, output = await self._host.output(
                argv, seconds, _GIT_MAX_BYTES, cage=self._cage, cwd=self._cwd, env=env
            )
        except OSError as error:
            return None, str(error)
        return code, output.decode("utf-8", "replace")


_MAX_STATUS_CHARS = 2000
_RECENT_COMMITS = 5
_NO_COMMITS = "## No commits yet on "
_REFS = "--format=%(refname:short) %(symref:short)"
_GIT_COMMANDS = (
    ("rev-parse", "--abbrev-ref", "HEAD"),
    ("for-each-ref", _REFS, "refs/heads", "refs/remotes/origin/HEAD", "--count=500"),
    ("status", "--short", "--branch", "--untracked-files=normal", "--ignore-submodules=dirty"),
    ("log", "--oneline", "--no-decorate", "--no-color", "-n", str(_RECENT_COMMITS)),
    ("config", "--get", "user.name"),
)
_GIT_STARTS_NOTHING = ("rev-parse", "for-each-ref", "config")
"""Commands that start no program, whatever the repository's configuration names."""


async def git_text(cwd: str, host: Host, cages: Cages) -> str:
    """Return what a model is told of the repository, "" without one or without git. The commands run at the same
    time."""
    git = Git(host, cages, cwd)
    if not git.available:
        return ""
    why = await git.why_unsafe()
    asked = [command for command in _GIT_COMMANDS if not why or command[0] in _GIT_STARTS_NOTHING]
    outputs = await asyncio.gather(*(git.run(*command) for command in asked))
    found = {command[0]: output for command, output in zip(asked, outputs) if output is not None}
    if "status" not in found:
        found["status"] = f"\n(git status was not asked: {why})" if why else "\n(git status did not answer)"
    return _told(*(found.get(command[0], "") for command in _GIT_COMMANDS))


def _told(branch: str, refs: str, status: str, commits: str, user: str) -> str:
    first, _, changes = status.partition("\n")  # the first line is about the branch
    unborn = first[len(_NO_COMMITS) :] if first.startswith(_NO_COMMITS) else ""
    named = (("Branch", branch or unborn), ("Main branch", _main_branch(refs)), ("User", user.strip()[:200]))
    lines = ["Git at the start of the session; it is not kept up to date:"]
    lines += [f"{name}: {value.strip()}" for name, value in named if value.strip()]
    lines += ["Status:", _cut(changes.rstrip("\n")) or "(clean)"]
    recent = commits.strip()[:_MAX_STATUS_CHARS]
    return "\n".join([*lines, *(["Recent commits:", recent] if recent else [])])


def _main_branch(refs: str) -> str:
    """Return the branch that origin's HEAD names, or else a local branch with a usual name."""
    names = dict(line.partition(" ")[::2] for line in refs.splitlines())
    remote = names.get("origin/HEAD") or names.get("origin") or ""
    usual = next((name for name in ("main", "master", "trunk", "develop") if name in names), "")
    return remote.removeprefix("origin/") if remote.startswith("origin/") else usual


def _cut(status: str) -> str:
    if len(status) <= _MAX_STATUS_CHARS:
        return status
    kept = status[:_MAX_STATUS_CHARS].rpartition("\n")[0]
    missing = status[len(kept) :].strip("\n").count("\n") + 1
    return f"{kept}\n({missing} more lines were cut; run `git status` to see them all)"
