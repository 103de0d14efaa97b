"""The git worktree of a whole session (`--worktree`): made before its daemon starts, made again when a later worker
needs it, and removed when a worker ends that leaves nothing in it."""

from __future__ import annotations

import asyncio
import os

from ccb.tunnel.wire.kinds.worktrees import WorktreeRecord

from ..context.git import Git
from ..journal.summary import main_worktree
from ..sessions.refusal import HostRefusal
from ..sessions.registry import sessions
from ..tools.registry import close_context, make_context
from .worktrees import WorktreeRefused, Worktrees, directory_in


def own_worktree(cwd: str, name: str) -> tuple[str, WorktreeRecord | None]:
    """Make a worktree for a session that would work in `cwd`, or take one of that name that is there. Return where the
    session works, and the worktree if it was made now. Raise HostRefusal."""
    return asyncio.run(_made(cwd, name))


def make_again(journal: str) -> None:
    """Make the worktree of a session again that an earlier worker has removed. Raise HostRefusal, OSError."""
    tree = main_worktree(journal)
    if tree is not None and not os.path.lexists(tree.path):
        asyncio.run(_made(tree.top, os.path.basename(tree.path), tree))


async def _made(cwd: str, name: str, tree: WorktreeRecord | None = None) -> tuple[str, WorktreeRecord | None]:
    context = make_context(cwd, "")
    trees = Worktrees(context.host, context.cages)
    try:
        if os.path.basename(name) != name or name.startswith("."):
            raise WorktreeRefused(f"{name[:100]!r} is no name")
        tree = tree or await trees.plan(cwd, name)
        there = os.path.lexists(os.path.join(tree.path, ".git"))
        await trees.make(tree)
        return directory_in(tree, cwd), None if there else tree
    except WorktreeRefused as error:
        raise HostRefusal("no_worktree", f"there is no worktree for the session: {error}", {}) from None
    finally:
        await close_context(context)


async def give_back(journal: str) -> None:
    """The worker of a session ends: remove its worktree if nothing is changed, committed or ignored in it, and no other
    session works there."""
    tree = main_worktree(journal)
    if tree is None or sum(each.alive and f"{each.cwd}/".startswith(f"{tree.path}/") for each in sessions()) > 1:
        return
    context = make_context(tree.top, "")
    try:
        left = await Git(context.host, context.cages, tree.path).run("status", "--porcelain", "--ignored")
        if left is not None and not left.strip():
            await Worktrees(context.host, context.cages).remove(tree)
    finally:
        await close_context(context)
