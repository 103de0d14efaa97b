"""`ccb gc`: remove what ended workers have left, and old sessions; `ccb clean`: remove everything of ccb."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import stat
import time
from collections.abc import Collection, Iterable, Sequence

from ccb.tunnel.wire.frames import Json

from ..sandbox.cage_directories import left_directories, open_up, places_in, unneeded
from ..sandbox.running import name_of
from ..session_store import session_registry as registry
from ..session_store.locks import elsewhere, exists, is_alive
from ..session_store.node_claim import owner_of
from ..session_store.session_moves import ARRIVING
from ..session_store.session_paths import MADE
from ..system.process import stop_marked
from . import stopping
from .reports import Reports, text_of

_TEMPORARY = re.compile(
    r"\.probe-[0-9a-f]{16}|\.probe-(\d+)|journal\.jsonl\.new-(\d+)"
    r"|\.[0-9a-f]{16}\.(\d+)(?:-[0-9a-f]{16})?|\.(\d+)-(?:\d+-.+|[a-z0-9_]{8})"
)
_BUNDLE = re.compile(r"[0-9a-f]{64}\.(bundle|zip|[\w.+-]+\.code)")  # a bundle, or the compiled copy of one
_RUNTIME = re.compile(r".+\.(sock|lock)|\.probe-([0-9a-f]{16}|\d+)")
_LOGINS = re.compile(r"login\.json(\.\d+)?|\.[0-9a-f]{16}\.\d+(-[0-9a-f]{16})?")
_HALF_WRITTEN = ("summary.json.new", "epoch.new", "journal.jsonl.new")
_DEAD = "its worker is gone"
_LEFT = "left by a process that is gone"
_MAY_RUN = "its worker may run on %s"
_LIVES = "its worker does not end"


def collect(reports: Reports, bundles: Sequence[str], *, dry_run: bool, older_than_s: float) -> None:
    """Remove all of this, or only report it. Keep `bundles`, and those in use."""
    remover, places = stopping.Remover(reports, dry_run), session_places()
    _stop_lost_daemons(reports, dry_run)
    end_leftovers(reports, dry_run)
    for entry in registry.sessions():
        with contextlib.suppress(FileNotFoundError):
            if not entry.alive:
                _old_session(remover, entry, older_than_s)
    owners = _owners_elsewhere()
    _unused_sessions(remover, older_than_s, owners)
    for top, names in registry.ours_in(registry.runtime_directories()):
        _dead_sockets(remover, top, names)
        _temporary(remover, top)
    _left_directories(remover, places)
    keep = {*bundles, *stopping.bundles_in_use(), *(str(owner.get("bundle")) for owner in owners.values())}
    for top, names in registry.ours_in(registry.worker_directories()):
        for name in filter(_BUNDLE.fullmatch, names):
            path = os.path.join(top, name)
            if name[:64] not in keep:
                remover.file(path, "bundle", "no worker uses it")
            elif name[:64] not in bundles:
                reports.kept(path, "a living worker uses it")
        _temporary(remover, top)


def clean_host(reports: Reports, bundles: Sequence[str], *, dry_run: bool) -> None:
    """Remove everything; the `bundles` that this process runs from last."""
    targets, places = [each for each in stopping.all_sessions() if each.alive], session_places()
    if dry_run:
        for target in targets:
            reports.stopped(target.session, target.pid, "")
    else:
        stopping.stop_all(targets, reports)
    _stop_lost_daemons(reports, dry_run)
    end_leftovers(reports, dry_run)
    remover = stopping.Remover(reports, dry_run)
    ending = {target.session for target in targets} if dry_run else set()
    owners = _owners_elsewhere()
    for session, directory in registry.directories():
        if directory in owners:
            reports.kept(directory, _MAY_RUN % elsewhere(owners[directory]))
        elif session in registry.live_sessions() and session not in ending:
            reports.kept(directory, _LIVES)
        else:
            remover.session(directory, "")
    for top in registry.state_directories():
        jobs = os.path.join(os.path.dirname(top), "jobs")  # of fleets that Slurm runs
        if os.path.isdir(jobs):
            remover.tree(jobs, "temp", "")
        remover.directory(top, "")
    _runtime_files(remover, {*registry.live_sessions()} - ending)
    _left_directories(remover, places)
    _bundles(remover, {str(owner.get("bundle")) for owner in owners.values()}, last=bundles)
    _own_directories(remover)


def _runtime_files(remover: stopping.Remover, alive: set[str]) -> None:
    for top, names in registry.ours_in(registry.runtime_directories()):
        for name in filter(_RUNTIME.fullmatch, names):
            session, ending = os.path.splitext(name)
            if session in alive:
                remover.reports.kept(os.path.join(top, name), _LIVES)
            else:
                what = {".sock": "socket", ".lock": "lock"}.get(ending, "temp")
                remover.file(os.path.join(top, name), what, "")


def session_places() -> list[str]:
    return sorted({entry.cwd for entry in registry.sessions() if entry.cwd})


def _left_directories(remover: stopping.Remover, places: Iterable[str]) -> None:
    """Remove what the cages of dead workers have left."""
    with unneeded(places_in(places)) as paths:
        for path in paths:
            remover.directory(path, _LEFT, empty_only=True)
    for path in left_directories():
        if not remover.dry_run:
            open_up(path)
        remover.tree(path, "temp", _LEFT)


def _stop_lost_daemons(reports: Reports, dry_run: bool) -> None:
    """End daemons whose journal was removed: no client can reach them any more."""
    tops = registry.state_directories()
    for pid in stopping.own_processes():
        with contextlib.suppress(OSError):
            if name_of(pid) != "ccb":
                continue
            for fd in os.listdir("/proc/%d/fd" % pid):
                folder, _, name = os.readlink("/proc/%d/fd/%s" % (pid, fd)).rpartition("/")
                if name == "journal.jsonl (deleted)" and os.path.dirname(folder) in tops:
                    if not dry_run:
                        os.kill(pid, signal.SIGINT)
                    reports.stopped(os.path.basename(folder), pid, "its journal was removed")
                    break


def end_leftovers(reports: Reports, dry_run: bool) -> None:
    """End the processes that the tools of killed workers have left running."""
    marked = stopping.marked_processes()
    if not marked:
        return
    alive, dead = set(), {}
    for entry in registry.sessions():
        if "state" in entry.summary and "pid" not in entry.summary:
            continue  # its daemon ended normally and left no process
        mark = stopping.mark_of(entry)
        if entry.alive:
            alive.add(mark)
        elif mark in marked and not entry.elsewhere:
            dead[mark] = entry.session
    dead.update(_marks_of_memory_sessions(marked))
    for mark, session in dead.items():
        if mark in alive:
            continue
        names = [(pid, name_of(pid)) for pid in marked[mark]]  # read the names before the processes end
        if not dry_run:
            asyncio.run(stop_marked(mark))
        for pid, name in names:
            why = "left running by a tool of session %s" % session
            reports.report("ended", {"session": session, "pid": pid, "what": name, "why": why})


def _marks_of_memory_sessions(marked: Iterable[str]) -> dict[str, str]:
    """Return the marks of ended sessions in memory, their ids; none while a daemon in another network may have them."""
    owners = registry.live_sessions()
    asked = {owner.get("pid") for owner in owners.values()}
    known = all(pid in asked for pid in stopping.own_processes() if name_of(pid) == "ccb")
    return {mark: mark for mark in marked if known and len(mark) == 36 and mark not in owners}


def _old_session(remover: stopping.Remover, entry: registry.SessionEntry, older_than_s: float) -> None:
    """Remove a session without a worker if it is old, else what its worker has half written."""
    idle = min(time.time() - entry.updated, stopping.age(entry.journal))
    if entry.elsewhere:
        if idle > older_than_s:
            remover.reports.kept(entry.directory, _MAY_RUN % entry.elsewhere)
        return
    with stopping.locks_of(entry.session, entry.directory) as free:
        if free and idle > older_than_s:
            days, hours = idle / 86400, idle / 3600
            long = "%d days" % days if days >= 2 else "%d hours" % hours if hours >= 2 else "%d s" % idle
            remover.session(entry.directory, "not used for %s" % long)
        elif free:
            for name in _HALF_WRITTEN:
                remover.file(os.path.join(entry.directory, name), "temp", "half written by a worker that is gone")
            for name in ("", "outputs", "history"):
                _temporary(remover, os.path.join(entry.directory, name))


def _owners_elsewhere() -> dict[str, Json]:
    """Return the owners of sessions that other nodes of this home may run, by state directory."""
    owners = {each: owner_of(each, registry.read_summary(each)) for _, each in registry.directories()}
    return {directory: owner for directory, owner in owners.items() if elsewhere(owner)}


def _unused_sessions(remover: stopping.Remover, older_than_s: float, theirs: Collection[str]) -> None:
    owners = registry.live_sessions()
    for session, directory in registry.directories():
        journal = os.path.join(directory, "journal.jsonl")
        if session in owners or directory in theirs or (os.path.exists(journal) and os.path.getsize(journal)):
            continue
        arriving = os.path.join(directory, ARRIVING)
        if os.path.isdir(arriving) and stopping.age(arriving) < older_than_s:
            remover.reports.kept(directory, "a move to this host is not over")
            continue
        locks = [os.path.join(top, session + ".lock") for top in registry.runtime_directories()]
        if not any(map(registry.read_object, locks)) and stopping.age(directory) < stopping.YOUNG_S:
            continue  # the session may be about to begin
        with stopping.locks_of(session, directory) as free:
            if free:
                remover.tree(directory, "session", "never begun")


def _dead_sockets(remover: stopping.Remover, top: str, names: Sequence[str]) -> None:
    homes = dict(registry.directories())
    for name in names:
        session, ending = os.path.splitext(name)
        path = os.path.join(top, name)
        if ending == ".lock":
            owner = registry.read_object(path)
            host = elsewhere(owner)
            if is_alive(owner):
                continue
            if host:
                remover.reports.kept(path, _MAY_RUN % host)
                continue
            with stopping.locks_of(session, homes.get(session, "")) as free:
                if free:
                    remover.file(path[:-5] + ".sock", "socket", _DEAD)
                    remover.file(path, "lock", _DEAD)
        elif ending == ".sock" and path not in remover.gone and _is_dead(path):
            remover.file(path, "socket", "nobody listens")


def _is_dead(path: str) -> bool:
    try:
        if os.path.lexists(path[:-5] + ".lock") or not stat.S_ISSOCK(os.lstat(path).st_mode) or stopping.age(path) < 1:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            probe.connect(path)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _temporary(remover: stopping.Remover, directory: str) -> None:
    """Remove temporary files whose process has ended, and old ones whose name has no process id."""
    for top, names in registry.ours_in([directory]):
        for match in filter(None, map(_TEMPORARY.fullmatch, names)):
            path = os.path.join(top, match[0])
            pid = next(filter(None, match.groups()), "")
            with contextlib.suppress(FileNotFoundError):
                if not exists(int(pid)) if pid else stopping.age(path) >= stopping.YOUNG_S:
                    remover.file(path, "temp", _LEFT)


def _bundles(remover: stopping.Remover, in_use: set[str], last: Sequence[str]) -> None:
    tops = registry.worker_directories()
    own = [os.path.join(top, each + ".bundle") for top in tops for each in last]
    for top, names in registry.ours_in(tops):
        for name in names:
            path = os.path.join(top, name)
            if path in own or not (_BUNDLE.fullmatch(name) or _LOGINS.fullmatch(name)):
                continue
            if name[:64] in in_use:
                remover.reports.kept(path, "a worker on another host may use it")
            else:
                remover.file(path, "temp" if name.startswith(".") else "bundle", "")
    for path in own:
        if registry.is_ours(os.path.dirname(path)):
            remover.file(path, "bundle", "")


def _own_directories(remover: stopping.Remover) -> None:
    """Remove the directories of ccb, and empty parents that ccb created for them."""
    tops = registry.worker_directories()
    parents = {os.path.dirname(path) for path in [*tops, *registry.state_directories()]}
    parents.update(registry.runtime_directories())
    for path in filter(registry.is_ours, [*tops, *sorted(parents, key=len, reverse=True)]):
        made = text_of(os.path.join(path, MADE), os.O_NOFOLLOW).split("\n")
        if remover.directory(path, "", mark=MADE):
            for each in made:
                if os.path.isabs(each) and path.startswith(each + "/") and registry.is_ours(each):
                    remover.directory(each, "made for ccb, and empty", empty_only=True)
