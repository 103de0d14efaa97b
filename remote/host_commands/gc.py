"""`ccb gc`: remove what ended workers have left, and old sessions. Live sessions are not touched."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import stat
import time
from collections.abc import Iterable, Sequence

from ..sandbox.cage_directories import left_directories, left_in, open_up
from ..session_store import process_identity
from ..session_store.session_registry import (
    SessionEntry,
    directories,
    is_ours,
    live_sessions,
    read_object,
    runtime_directories,
    sessions,
    state_directories,
    worker_directories,
)
from ..system.process import stop_marked
from .removing import (
    YOUNG_S,
    Remover,
    age,
    bundles_in_use,
    locks_of,
    marked_processes,
    name_of,
    own_processes,
    remove_worktrees,
)
from .reports import Reports
from .stopping import mark_of

_TEMPORARY = re.compile(
    r"\.probe-[0-9a-f]{16}|\.probe-(\d+)|journal\.jsonl\.new-(\d+)"
    r"|\.[0-9a-f]{16}\.(\d+)(?:-[0-9a-f]{16})?|\.(\d+)-(?:\d+-.+|[a-z0-9_]{8})"
)
_BUNDLE = re.compile(r"[0-9a-f]{64}\.(bundle|zip|[\w.+-]+\.code)")  # a bundle, or the compiled copy of one
_HALF_WRITTEN = ("summary.json.new", "epoch.new")
_WHOLE_SESSION = ("journal.jsonl", "summary.json", "epoch", "daemon.log")


def collect(reports: Reports, bundles: Sequence[str], *, dry_run: bool, older_than_s: float) -> None:
    """Remove all of this, or only report it. Keep `bundles`, and those in use."""
    remover, places = Remover(reports, dry_run), session_places()
    stop_lost_daemons(reports, dry_run)
    end_leftovers(reports, dry_run)
    _old_sessions(remover, older_than_s)
    _unused_sessions(remover)
    _remove_dead_sockets(remover)
    for top in runtime_directories():
        _remove_temporary(remover, top)
    remove_left_directories(remover, places)
    _remove_bundles(remover, bundles)


def session_places() -> list[str]:
    return sorted({entry.cwd for entry in sessions() if entry.cwd})


def remove_left_directories(remover: Remover, places: Iterable[str]) -> None:
    """Remove what the cages of dead workers have left."""
    with left_in(places) as paths:
        for path in paths:
            remover.directory(path, "left by a process that is gone", empty_only=True)
    for path in left_directories():
        if not remover.dry_run:
            open_up(path)
        remover.tree(path, "temp", "left by a process that is gone")


def stop_lost_daemons(reports: Reports, dry_run: bool) -> None:
    tops = state_directories()
    for pid in own_processes():
        with contextlib.suppress(OSError):
            if not _is_daemon(pid):
                continue
            for fd in os.listdir("/proc/%d/fd" % pid):
                path = os.readlink("/proc/%d/fd/%s" % (pid, fd))
                folder, _, name = path.rpartition("/")
                if name == "journal.jsonl (deleted)" and os.path.dirname(folder) in tops:
                    if not dry_run:
                        os.kill(pid, signal.SIGINT)
                    reports.stopped(os.path.basename(folder), pid, "its journal was removed")
                    break


def end_leftovers(reports: Reports, dry_run: bool) -> None:
    marked = marked_processes()
    if not marked:
        return
    alive, dead = set(), {}
    for entry in sessions():
        if "state" in entry.summary and "pid" not in entry.summary:
            continue  # its daemon ended normally and left no process
        mark = mark_of(entry.directory, entry.summary)
        if entry.alive:
            alive.add(mark)
        elif mark in marked and not entry.elsewhere:
            dead[mark] = entry.session
    dead.update(_marks_of_ended_memory_sessions(marked))
    for mark, session in dead.items():
        if mark in alive:
            continue
        names = [(pid, name_of(pid)) for pid in marked[mark]]  # read the names before the processes end
        if not dry_run:
            asyncio.run(stop_marked(mark))
        for pid, name in names:
            reports.ended(session, pid, name, "left running by a tool of session %s" % session)


def _marks_of_ended_memory_sessions(marked: Iterable[str]) -> dict[str, str]:
    """Return the marks (which are session ids) of ended sessions in memory. {} while some daemon cannot be asked: it
    may be in another network namespace."""
    owners = live_sessions()
    found = {owner.get("pid") for owner in owners.values()}
    if any(_is_daemon(pid) and pid not in found for pid in own_processes()):
        return {}
    return {mark: mark for mark in marked if len(mark) == 36 and mark not in owners}


def _is_daemon(pid: int) -> bool:
    return name_of(pid) == "ccb" and bool(process_identity.start_time(pid))  # a zombie has no start time


def _old_sessions(remover: Remover, older_than_s: float) -> None:
    for entry in sessions():
        with contextlib.suppress(FileNotFoundError):
            if not entry.alive:
                _old_session(remover, entry, older_than_s)


def _old_session(remover: Remover, entry: SessionEntry, older_than_s: float) -> None:
    idle = min(time.time() - entry.updated, age(entry.journal))
    if entry.elsewhere:
        if idle > older_than_s:
            remover.reports.kept(entry.directory, "its worker may run on %s" % entry.elsewhere)
        return
    with locks_of(entry.session, entry.directory) as free:
        if free and idle > older_than_s:
            remove_worktrees(remover, entry.directory)
            remover.tree(entry.directory, "session", "not used for %s" % _long(idle))
        elif free:
            _half_written(remover, entry)


def _long(seconds: float) -> str:
    days, hours = seconds / 86400, seconds / 3600
    return "%d days" % days if days >= 2 else "%d hours" % hours if hours >= 2 else "%d s" % seconds


def _half_written(remover: Remover, entry: SessionEntry) -> None:
    for name in _HALF_WRITTEN:
        path = os.path.join(entry.directory, name)
        if os.path.lexists(path):
            remover.file(path, "temp", "half written by a worker that is gone")
    _remove_temporary(remover, entry.directory)
    for name in ("outputs", "history"):
        _remove_temporary(remover, os.path.join(entry.directory, name))


def _unused_sessions(remover: Remover) -> None:
    owners = live_sessions()
    for session, directory in directories():
        journal = os.path.join(directory, "journal.jsonl")
        if session in owners or (os.path.exists(journal) and os.path.getsize(journal)):
            continue
        locks = [os.path.join(top, session + ".lock") for top in runtime_directories()]
        if not any(map(read_object, locks)) and age(directory) < YOUNG_S:
            continue  # the session may be about to begin
        with locks_of(session, directory) as free:
            if free:
                remover.tree(directory, "session", "never begun")


def _remove_dead_sockets(remover: Remover) -> None:
    homes = dict(directories())
    for top in runtime_directories():
        if not is_ours(top):
            continue
        for name in sorted(os.listdir(top)):
            session, ending = os.path.splitext(name)
            path = os.path.join(top, name)
            if ending == ".lock":
                _remove_dead_lock(remover, top, session, homes.get(session, ""))
            elif ending == ".sock" and path not in remover.gone and _is_dead(path):
                remover.file(path, "socket", "nobody listens")


def _remove_dead_lock(remover: Remover, top: str, session: str, directory: str) -> None:
    path = os.path.join(top, session + ".lock")
    owner = read_object(path)
    if process_identity.is_alive(owner):
        return
    host = process_identity.elsewhere(owner)
    if host:
        remover.reports.kept(path, "its worker may run on %s" % host)
        return
    with locks_of(session, directory) as free:
        sock = os.path.join(top, session + ".sock")
        if free and os.path.lexists(sock):
            remover.file(sock, "socket", "its worker is gone")
        if free:
            remover.file(path, "lock", "its worker is gone")


def _is_dead(path: str) -> bool:
    try:
        if os.path.lexists(path[:-5] + ".lock") or not stat.S_ISSOCK(os.lstat(path).st_mode) or age(path) < 1:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            probe.connect(path)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _remove_temporary(remover: Remover, directory: str) -> None:
    if not is_ours(directory):
        return
    for name in os.listdir(directory):
        match = _TEMPORARY.fullmatch(name)
        if match is not None:
            path = os.path.join(directory, name)
            pid = next((each for each in match.groups() if each), "")
            with contextlib.suppress(FileNotFoundError):
                if not process_identity.exists(int(pid)) if pid else age(path) >= YOUNG_S:
                    remover.file(path, "temp", "left by a process that is gone")


def _remove_bundles(remover: Remover, current: Sequence[str]) -> None:
    keep = {*current, *bundles_in_use()}
    for top in worker_directories():
        if not is_ours(top):
            continue
        for name in sorted(os.listdir(top)):
            path = os.path.join(top, name)
            if not _BUNDLE.fullmatch(name):
                continue
            if name[:64] not in keep:
                remover.file(path, "bundle", "no worker uses it")
            elif name[:64] not in current:
                remover.reports.kept(path, "a living worker uses it")
        _remove_temporary(remover, top)
