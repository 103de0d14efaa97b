"""Git worktrees of agents and sessions. One with nothing changed or committed is removed; in doubt it stays."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ccb.tunnel.wire.journal_records import WorktreeRecord

from ..context.git_state import Git
from ..session_store.journal_summary import main_worktree
from ..session_store.refusal import HostRefusal
from ..session_store.session_registry import sessions
from ..system.regular_files import NotAFile, open_regular
from ..tools.tool_contract import ToolContext
from ..tools.toolset import close_context, make_context


def own_worktree(cwd: str, name: str) -> tuple[str, WorktreeRecord | None]:
    """Make or find the worktree of a session. Return where it works, and a new worktree. Raise HostRefusal."""
    return asyncio.run(_made(cwd, name))


def make_again(journal: str) -> None:
    """Make the worktree of a session again that an earlier worker has removed. Raise HostRefusal, OSError."""
    tree = main_worktree(journal)
    if tree is not None and not os.path.lexists(tree.path):
        asyncio.run(_made(tree.top, os.path.basename(tree.path), tree))


@asynccontextmanager
async def _trees(cwd: str) -> AsyncIterator[Worktrees]:
    context = make_context(cwd, "")
    try:
        yield Worktrees(context)
    finally:
        await close_context(context)


async def _made(cwd: str, name: str, tree: WorktreeRecord | None = None) -> tuple[str, WorktreeRecord | None]:
    async with _trees(cwd) as trees:
        try:
            if os.path.basename(name) != name or name.startswith("."):
                raise WorktreeRefused(f"{name[:100]!r} is no name")
            tree = tree or await trees.plan(cwd, name)
            there = os.path.lexists(os.path.join(tree.path, ".git"))
            await trees.make(tree)
            return directory_in(tree, cwd), None if there else tree
        except WorktreeRefused as error:
            raise HostRefusal("no_worktree", f"there is no worktree for the session: {error}", {}) from None


async def remove_untouched(tree: WorktreeRecord) -> bool:
    async with _trees(tree.top) as trees:
        return await trees.remove(tree)


async def give_back(journal: str) -> None:
    """Remove a session's worktree if nothing is changed, committed or ignored in it and no other session is there."""
    tree = main_worktree(journal)
    if tree is None or sum(each.alive and f"{each.cwd}/".startswith(f"{tree.path}/") for each in sessions()) > 1:
        return
    async with _trees(tree.top) as trees:
        left = await trees.git(tree.path).run("status", "--porcelain", "--ignored")
        if left is not None and not left.strip():
            await trees.remove(tree)


PLACE = ".claude/worktrees"
_MAKE_S, _REMOVE_S = 300.0, 60.0
_MAX_NAME = 40  # characters
_MAX_REASON = 500
_BEING_MADE = "initializing"  # what git writes into the lock of a work tree that it makes


class WorktreeRefused(Exception):
    pass


class Worktrees:
    def __init__(self, context: ToolContext) -> None:
        self._context = context

    def git(self, cwd: str, *write: str) -> Git:
        return Git(self._context.host, self._context.cages, cwd, write)

    async def plan(self, cwd: str, name: str, key: str = "") -> WorktreeRecord:
        """Return the work tree that `make` would make; `key` makes its name unique. Raise WorktreeRefused."""
        git = self.git(cwd)
        if not git.available:
            raise WorktreeRefused(f"{cwd} is not in a repository of git, or this host has no git")
        top, base = await git.run("rev-parse", "--show-toplevel"), await git.run("rev-parse", "HEAD")
        if not top or not base:
            raise WorktreeRefused(f"git finds no commit in {cwd}")
        words = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_MAX_NAME].strip("-") or "agent"
        slug = f"{words}-{hashlib.sha256(key.encode()).hexdigest()[:8]}" if key else name
        top = os.path.realpath(top.rstrip("\n"))
        return WorktreeRecord(os.path.join(top, PLACE, slug), f"worktree/{slug}", base.strip(), top)

    async def make(self, tree: WorktreeRecord) -> None:
        if not tree.branch:
            if not os.path.isdir(tree.path):
                raise WorktreeRefused(f"{tree.path}, which a hook has made, is gone")
            return
        if os.path.lexists(os.path.join(tree.path, ".git")):
            if not _half_made(await self._shared(tree), tree):
                return
            await self.discard(tree)
        place = os.path.dirname(tree.path)
        if os.path.realpath(place) != place:  # before anything is made: the link may lead out of the repository
            raise WorktreeRefused(f"{place} is behind a link")
        try:
            os.makedirs(place, exist_ok=True)
            ignored = os.path.join(place, ".gitignore")
            if not os.path.lexists(ignored):
                with open(ignored, "x", encoding="ascii") as file:
                    file.write("*\n")
        except OSError as error:
            raise WorktreeRefused(str(error)) from None
        git = await self._git(tree)
        there = await git.run("rev-parse", "--verify", f"refs/heads/{tree.branch}")
        how: Sequence[str] = (tree.path, tree.branch) if there else ("-b", tree.branch, tree.path, tree.base)
        code, said = await git.end(("worktree", "add", *how), _MAKE_S, "&1")
        if code != 0:
            raise WorktreeRefused(said.strip()[-_MAX_REASON:] or "git did not end in time")

    async def discard(self, tree: WorktreeRecord) -> None:
        git = await self._git(tree)
        await git.end(("worktree", "remove", "--force", "--force", tree.path), _REMOVE_S)
        await git.run("update-ref", "-d", f"refs/heads/{tree.branch}", tree.base)

    async def remove(self, tree: WorktreeRecord) -> bool:
        try:
            if not tree.branch:
                return not os.path.lexists(tree.path)  # the hook that made it decides
            git = await self._git(tree)
        except WorktreeRefused:
            return False
        inside = self.git(tree.path)
        heads = await inside.run("rev-parse", "HEAD", tree.branch)
        if heads is None or set(heads.split()) != {tree.base} or await inside.why_unsafe():
            return False
        code, _ = await git.end(("worktree", "remove", tree.path), _REMOVE_S)  # refuses what is changed
        if code == 0:
            await git.run("update-ref", "-d", f"refs/heads/{tree.branch}", tree.base)
        return code == 0

    async def _shared(self, tree: WorktreeRecord) -> str:
        common = await self.git(tree.top).run("rev-parse", "--git-common-dir")
        if not common:
            raise WorktreeRefused(f"git finds no repository in {tree.top}")
        return os.path.realpath(os.path.join(tree.top, common.rstrip("\n")))

    async def _git(self, tree: WorktreeRecord) -> Git:
        git = self.git(tree.top, await self._shared(tree), os.path.dirname(tree.path))
        why = await git.why_unsafe()
        if why:
            raise WorktreeRefused(f"git is not safe to run there: {why}")
        return git


def _half_made(shared: str, tree: WorktreeRecord) -> bool:
    """Return whether git was killed while it made a work tree: its own lock is left."""
    lock = os.path.join(shared, "worktrees", os.path.basename(tree.path), "locked")
    try:
        with open_regular(lock) as file:
            return os.read(file, _MAX_REASON).decode("utf-8", "replace").strip() == _BEING_MADE
    except (OSError, NotAFile):
        return False


def directory_in(tree: WorktreeRecord, cwd: str) -> str:
    path = os.path.normpath(os.path.join(tree.path, os.path.relpath(os.path.realpath(cwd), tree.top)))
    return path if os.path.isdir(path) and os.path.realpath(path) == path else tree.path
