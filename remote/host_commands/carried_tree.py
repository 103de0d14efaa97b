"""The files of a session's directory that move with it: a git bundle of its branch, and of what is not committed.

Both ends let git do the work. What is not committed, also untracked files, is a commit on top of the branch, the HEAD
of the bundle; what git ignores stays. The source commits in a repository of its own that borrows the objects, so
nothing changes there and no configuration of the repository counts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Sequence
from typing import Callable, TypeVar

from ..context.git_state import Git
from ..session_store.refusal import HostRefusal
from ..tools.toolset import close_context, make_context

T = TypeVar("T")

_SECONDS = 600.0
_SAID = 300  # characters of what git says
_TREE = "refs/ccb/tree"
_WITHOUT = "Leave the files out: --no-files."
_CLEAN = "Commit or stash what is there, or move without files: --no-files."
_AUTHOR = ("-c", "user.name=ccb", "-c", "user.email=ccb@localhost")
_CHECKED = (
    *("-c", "fetch.fsckObjects=true"),
    *("-c", "core.protectHFS=true"),
    *("-c", "core.protectNTFS=true"),
    *("-c", "gc.auto=0"),
)


def make_bundle(cwd: str, place: str) -> str:
    """Write a bundle of the repository at `cwd` into the directory `place`. Return its path. Raise HostRefusal."""
    return asyncio.run(_with_git(cwd, (place,), lambda git: _made(git, cwd, place)))


def check_target(cwd: str) -> None:
    """Raise HostRefusal unless the files of a bundle may go to `cwd`: a clean repository, or an empty directory."""
    if os.path.lexists(os.path.join(cwd, ".git")):
        asyncio.run(_with_git(cwd, (), _check_clean))
    elif os.listdir(cwd):
        raise _refused("%s is not empty and no repository of git" % cwd, _WITHOUT)


def take_bundle(cwd: str, bundle: str) -> None:
    """Check out the files of a bundle in `cwd`. What was not committed is not committed here. The bundle is
    alone in its directory, which git may read. Raise HostRefusal."""
    check_target(cwd)
    if not os.path.lexists(os.path.join(cwd, ".git")):
        _new_repository(os.path.join(cwd, ".git"), "ref: refs/heads/main")
    asyncio.run(_with_git(cwd, (cwd, os.path.dirname(bundle)), lambda git: _taken(git, bundle)))


async def _with_git(cwd: str, write: Sequence[str], work: Callable[[Git], Awaitable[T]]) -> T:
    context = make_context(cwd, "")
    try:
        git = Git(context.host, context.cages, cwd, write)
        if not git.available:
            raise _refused("%s is not in a repository of git, or this host has no git" % cwd, _WITHOUT)
        return await work(git)
    finally:
        await close_context(context)


async def _made(git: Git, cwd: str, place: str) -> str:
    top, head = await git.run("rev-parse", "--show-toplevel"), await git.run("rev-parse", "HEAD")
    if head is None or top is None or os.path.realpath(top.rstrip("\n")) != os.path.realpath(cwd):
        raise _refused("%s is not the top of a repository with a commit" % cwd, _WITHOUT)
    branch = (await git.run("symbolic-ref", "--quiet", "HEAD") or "").split()
    objects, exclude = [
        os.path.join(cwd, (await git.run("rev-parse", "--git-path", name) or "").rstrip("\n"))
        for name in ("objects", "info/exclude")
    ]
    repository, bundle = os.path.join(place, "git"), os.path.join(place, "tree.bundle")
    _new_repository(repository, head.strip())
    with open(os.path.join(repository, "objects/info/alternates"), "wb") as file:
        file.write(os.fsencode(objects) + b"\n")
    os.symlink(exclude, os.path.join(repository, "info/exclude"))
    own = ("--git-dir", repository, "--work-tree", cwd, *_AUTHOR)
    for each in branch:
        await _do(git, *own, "update-ref", each, "HEAD")
    await _do(git, *own, "read-tree", "HEAD")
    await _do(git, *own, "add", "--all")
    await _do(git, *own, "commit", "--quiet", "--allow-empty", "--no-gpg-sign", "-m", "Not committed")
    await _do(git, *own, "bundle", "create", "--quiet", bundle, *branch, "HEAD")
    return bundle


def _new_repository(path: str, head: str) -> None:
    """Make an empty repository, which `git init` would fill from a template of the user."""
    for name in ("refs", "objects/info", "info"):
        os.makedirs(os.path.join(path, name))
    with open(os.path.join(path, "HEAD"), "w", encoding="utf-8") as file:
        file.write(head + "\n")


async def _check_clean(git: Git) -> None:
    why = await git.why_unsafe()
    if why:
        raise _refused("git is not safe to run in that directory: %s" % why, _WITHOUT)
    if await _do(git, "status", "--porcelain"):
        raise _refused("there are changes that are not committed in that directory", _CLEAN)


async def _taken(git: Git, bundle: str) -> None:
    heads = (await _do(git, "bundle", "list-heads", bundle)).split()
    branch = next((each for each in heads if each.startswith("refs/heads/")), "")
    await _do(git, *_CHECKED, "fetch", "--quiet", "--no-tags", bundle, f"+HEAD:{_TREE}")
    there = branch and await git.run("rev-parse", "--verify", "--quiet", branch) is not None
    if there and await git.run("merge-base", "--is-ancestor", branch, f"{_TREE}~1") is None:
        what = "%s of that directory has commits that the session's directory does not have" % branch
        raise _refused(what, _WITHOUT)
    name = ("-B", branch[len("refs/heads/") :]) if branch else ("--detach",)
    await _do(git, "checkout", "--quiet", "--no-overwrite-ignore", *name, _TREE)
    await _do(git, "reset", "--quiet", "--mixed", "HEAD~1")
    await _do(git, "update-ref", "-d", _TREE)


async def _do(git: Git, *command: str) -> str:
    """Return what a command of git says. Raise HostRefusal if it fails."""
    code, said = await git.end(command, _SECONDS, "&1")
    if code != 0:
        what = next((each for each in command if each.isalpha()), "git")
        raise _refused("git %s failed: %s" % (what, " ".join(said.split())[-_SAID:] or "it took too long"), _WITHOUT)
    return said.strip()


def _refused(text: str, do: str) -> HostRefusal:
    return HostRefusal("in_use", text, {"do": do})
