"""`rename` and `remove`: give one session a name for the lists, or remove it with everything that is kept of it."""

from __future__ import annotations

import json
import os
from typing import Any

from ..sessions.refusal import HostRefusal
from ..sessions.registry import TITLE
from ..sessions.session_files import private_file
from ..sessions.summary import read_summary
from .cleanup import Remover, hold
from .report import Reports
from .stopping import StopTarget, chosen, stop_all

Json = dict[str, Any]

_MAX_TITLE = 200


def rename(params: Json, reports: Reports) -> None:
    """Name a session. The name counts until the session itself is given another one. Raise HostRefusal, OSError."""
    target = _on_disk(params)
    title = " ".join(str(params.get("title") or "").split())[:_MAX_TITLE]
    path = os.path.join(target.directory, TITLE)
    with open(path + ".new", "w", encoding="utf-8", opener=private_file) as file:
        json.dump({"title": title, "over": read_summary(target.directory).get("title") or ""}, file)
    os.replace(path + ".new", path)
    reports.report("renamed", {"session": target.session})


def remove(params: Json, reports: Reports) -> None:
    """Stop a session and remove it. One that a client drives is left alone, unless that is meant (`driven`). Raise
    HostRefusal."""
    target = _on_disk(params)
    driver = str(read_summary(target.directory).get("driver") or "") if target.pid else ""
    if driver and not params.get("driven"):
        raise HostRefusal("in_use", "%s drives this session now" % driver[:200], {"do": "Look at the list again."})
    stop_all([target], reports)  # also what tools of a killed worker have left running
    held = hold(target.session, target.directory)
    if held is None:
        reports.kept(target.directory, "a process has the session open")
        return
    try:
        from .worktrees import remove_worktrees  # imports much

        remover = Remover(reports, dry_run=False)
        remove_worktrees(remover, target.directory)
        remover.tree(target.directory, "session", "asked for")
    finally:
        held.release()


def _on_disk(params: Json) -> StopTarget:
    """Return the session that the parameters name by its whole id. Raise HostRefusal."""
    (target,) = chosen({"session": params.get("session")})
    if not target.directory or target.session != params.get("session"):
        raise HostRefusal("in_use", "this session is in memory only", {"do": "Stop it."})
    return target
