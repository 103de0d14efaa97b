"""Work trees of git that sub-agents work in: the record in the journal."""

from __future__ import annotations

from typing import ClassVar

from ..dataclass import dataclass


@dataclass(frozen=True)
class WorktreeRecord:
    """`worktree`: ccb is about to make the work tree `path` for the sub-agent of the record, on the new branch `branch`
    from the commit `base` of the repository whose own work tree is `top`. `branch` is "" for a directory that a hook
    has made instead. `removed`: it was removed, with the branch."""

    kind: ClassVar[str] = "worktree"
    path: str
    branch: str
    base: str
    top: str
    removed: bool = False
