"""Remove everything of ccb; rename or remove one session."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

from ..session_store.refusal import HostRefusal
from ..session_store.session_files import replace_private
from ..session_store.session_paths import MADE
from ..session_store.session_registry import (
    TITLE,
    directories,
    is_ours,
    live_sessions,
    read_summary,
    runtime_directories,
    sessions,
    state_directories,
    worker_directories,
)
from .gc import end_leftovers, remove_left_directories, session_places, stop_lost_daemons
from .removing import Remover, locks_of, remove_worktrees
from .reports import Reports
from .stopping import StopTarget, all_targets, chosen, stop_all

_WHY = ""  # no reason is reported: the person asked for the removal
_RUNTIME = re.compile(r".+\.(sock|lock)|\.probe-([0-9a-f]{16}|\d+)")
_WORKER = re.compile(
    r"login\.json(\.\d+)?|[0-9a-f]{64}\.(bundle|zip|[\w.+-]+\.code)|\.[0-9a-f]{16}\.\d+(-[0-9a-f]{16})?"
)


def clean_host(reports: Reports, bundles: Sequence[str], *, dry_run: bool) -> None:
    """Remove everything; the `bundles` that this process runs from last."""
    targets, places = all_targets(), session_places()
    if dry_run:
        for target in targets:
            reports.stopped(target.session, target.pid, "")
    else:
        stop_all(targets, reports)
    stop_lost_daemons(reports, dry_run)
    end_leftovers(reports, dry_run)
    remover = Remover(reports, dry_run)
    ending = {target.session for target in targets} if dry_run else set()
    elsewhere = {entry.session: entry for entry in sessions() if entry.elsewhere}
    for session, directory in directories():
        if session in elsewhere:
            reports.kept(directory, "its worker may run on %s" % elsewhere[session].elsewhere)
        elif session in live_sessions() and session not in ending:
            reports.kept(directory, "its worker does not end")
        else:
            remove_worktrees(remover, directory)
            remover.tree(directory, "session", _WHY)
    for top in state_directories():
        remover.directory(top, _WHY)
    _runtime_files(remover, ending)
    remove_left_directories(remover, places)
    in_use = {str(entry.summary.get("bundle")) for entry in elsewhere.values()}
    _bundles(remover, in_use, last=bundles)


def _runtime_files(remover: Remover, ending: set[str]) -> None:
    owners = live_sessions()
    for top in runtime_directories():
        if not is_ours(top):
            continue
        for name in sorted(os.listdir(top)):
            path, session = os.path.join(top, name), os.path.splitext(name)[0]
            if not _RUNTIME.fullmatch(name):
                continue
            if session in owners and session not in ending:
                remover.reports.kept(path, "its worker does not end")
            else:
                what = "socket" if name.endswith(".sock") else "lock" if name.endswith(".lock") else "temp"
                remover.file(path, what, _WHY)


def _bundles(remover: Remover, in_use: set[str], last: Sequence[str]) -> None:
    tops = worker_directories()
    own = [os.path.join(top, each + ".bundle") for top in tops for each in last]
    for top in tops:
        if is_ours(top):
            for name in sorted(filter(_WORKER.fullmatch, os.listdir(top))):
                path = os.path.join(top, name)
                if path in own:
                    continue
                if name[:64] in in_use:
                    remover.reports.kept(path, "a worker on another host may use it")
                else:
                    remover.file(path, "temp" if name.startswith(".") else "bundle", _WHY)
    for path in own:
        if os.path.lexists(path) and is_ours(os.path.dirname(path)):
            remover.file(path, "bundle", _WHY)
    _directories(remover, tops)


def _directories(remover: Remover, tops: list[str]) -> None:
    """Remove the directories of ccb, and empty parents that ccb created for them."""
    parents = {os.path.dirname(path) for path in [*tops, *state_directories()]} | set(runtime_directories())
    for path in [*tops, *sorted(parents, key=len, reverse=True)]:
        if is_ours(path):
            made = _made_for(path)
            if remover.directory(path, _WHY, mark=MADE):
                for each in made:
                    remover.directory(each, "made for ccb, and empty", empty_only=True)


def _made_for(directory: str) -> list[str]:
    try:
        with open(os.path.join(directory, MADE), encoding="utf-8", opener=_no_link) as file:
            listed = file.read(65536).split("\n")
    except (OSError, ValueError):
        return []
    return [path for path in listed if os.path.isabs(path) and directory.startswith(path + "/") and is_ours(path)]


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


Json = dict[str, Any]

_MAX_TITLE = 200


def rename(params: Json, reports: Reports) -> None:
    """Name a session, until the session itself is given another name."""
    target = _on_disk(params)
    title = " ".join(str(params.get("title") or "").split())[:_MAX_TITLE]
    named = {"title": title, "over": read_summary(target.directory).get("title") or ""}
    replace_private(os.path.join(target.directory, TITLE), json.dumps(named))
    reports.report("renamed", {"session": target.session})


def remove(params: Json, reports: Reports) -> None:
    """Stop and remove a session, unless a client drives it (`driven` overrides)."""
    target = _on_disk(params)
    driver = str(read_summary(target.directory).get("driver") or "") if target.pid else ""
    if driver and not params.get("driven"):
        raise HostRefusal("in_use", "%s drives this session now" % driver[:200], {"do": "Look at the list again."})
    stop_all([target], reports)  # also what tools of a killed worker have left running
    with locks_of(target.session, target.directory) as free:
        if not free:
            reports.kept(target.directory, "a process has the session open")
            return
        remover = Remover(reports, dry_run=False)
        remove_worktrees(remover, target.directory)
        remover.tree(target.directory, "session", "asked for")


def _on_disk(params: Json) -> StopTarget:
    (target,) = chosen({"session": params.get("session")})
    if not target.directory or target.session != params.get("session"):
        raise HostRefusal("in_use", "this session is in memory only", {"do": "Stop it."})
    return target
