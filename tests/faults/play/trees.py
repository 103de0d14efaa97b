"""The repository in the home of a session, and the worktrees that its agents leave there."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Iterable

from tests.faults.play.outcome import text_of
from tests.support.hosts.sshd import HostUser

_NAME = re.compile(r"do-(\w+)-[0-9a-f]{8}")


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
    """The name of the agent that a worktree was made for."""
    match = _NAME.fullmatch(os.path.basename(path))
    return match[1] if match else path


def _git(user: HostUser, *words: str) -> str:
    owner = pwd.getpwnam(user.name)
    env = {"PATH": os.environ["PATH"], "HOME": str(user.home)}
    argv = ["git", *words]
    made = subprocess.run(
        argv, cwd=user.home, env=env, user=owner.pw_uid, group=owner.pw_gid, check=True, capture_output=True, text=True
    )
    return made.stdout
