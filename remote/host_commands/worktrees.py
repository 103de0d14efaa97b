"""The git worktrees that agents of a session have left, when the session is removed."""

from __future__ import annotations

import asyncio
import os

from ccb.tunnel.wire.kinds.worktrees import WorktreeRecord

from ..journal.summary import worktrees
from ..subagents.worktrees import Worktrees
from ..tools.registry import close_context, make_context
from .cleanup import Remover


def remove_worktrees(remover: Remover, session: str) -> None:
    """Remove the worktrees of a session that is in this directory, if nothing is changed in them; report the others."""
    try:
        left = [tree for tree in worktrees(os.path.join(session, "journal.jsonl")) if os.path.isdir(tree.path)]
    except OSError:
        return
    for tree in left:
        if not tree.branch:
            remover.reports.kept(tree.path, "a hook has made it for an agent")
        elif remover.dry_run:
            remover.reports.kept(tree.path, "an agent worked in it; it would go if nothing is changed in it")
        elif asyncio.run(_removed(tree)):
            remover.reports.removed(tree.path, "directory", 0, "an agent has left nothing in it")
        else:
            remover.reports.kept(tree.path, "an agent has left changes in it, on the branch %s" % tree.branch)


async def _removed(tree: WorktreeRecord) -> bool:
    context = make_context(tree.top, "")
    try:
        return await Worktrees(context.host, context.cages).remove(tree)
    finally:
        await close_context(context)
