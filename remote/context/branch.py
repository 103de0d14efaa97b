"""The branch of a directory, read from its repository without starting git."""

from __future__ import annotations

import os

from ..system.owners import repository_top

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
    """Return the first line of a regular file, "" if there is no such file that can be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, _MAX_BYTES).decode("utf-8", "replace").partition("\n")[0].strip()
    except OSError:
        return ""
    finally:
        os.close(fd)
