"""Stop, name and remove sessions: a stop ends the daemon and everything its tools have started."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterable, Iterator

from ccb.tunnel.wire.frames import Json

from ..session_store import session_paths, sockets
from ..session_store import session_registry as registry
from ..session_store.journal_summary import last_mark, worktrees
from ..session_store.locks import elsewhere, is_alive, kept_elsewhere
from ..session_store.node_claim import take
from ..session_store.refusal import HostRefusal
from ..session_store.session_files import private_file, replace_private
from ..session_store.session_registry import SessionEntry
from ..subagents.worktrees import remove_untouched
from ..system.process import mark_in, stop_marked
from .reports import Reports, text_of

log = logging.getLogger(__name__)

ASK_S = 12.0  # a daemon's goodbye to slow clients takes up to 10 s
_KILL_S = 5.0
_FREE_S = 1.0
_MAX_TITLE = 200


def all_sessions() -> list[SessionEntry]:
    """Return all sessions, also those that never began and have a worker."""
    known, owners = registry.sessions(), registry.live_sessions()
    for entry in known:
        owners.pop(entry.session, None)
    return known + [SessionEntry(session, "", owner) for session, owner in owners.items()]


def chosen(params: Json) -> list[SessionEntry]:
    if params.get("all"):
        return [each for each in all_sessions() if each.alive]
    found = registry.the_one(str(params.get("session") or ""), all_sessions())
    if found.elsewhere:
        raise kept_elsewhere(found.summary)
    return [found]


def stop_all(targets: Iterable[SessionEntry], reports: Reports) -> None:
    async def all_of_them() -> None:
        await asyncio.gather(*[_stop(target, reports) for target in targets])

    asyncio.run(all_of_them())


async def _stop(target: SessionEntry, reports: Reports) -> None:
    pid = target.pid
    mark = mark_of(target)
    how = "was not running"
    if target.directory:  # or a client that reconnects by itself would start the session again
        try:
            path = os.path.join(target.directory, session_paths.STOPPED)
            open(path, "w", encoding="utf-8", opener=private_file).close()
        except OSError as error:
            log.warning("a client that comes back by itself may start the session again: %s", error)
    if pid:
        how = await _end(target)
        if sockets.in_memory(str(target.summary.get("socket") or "")) and not target.directory:
            how += "; it was in memory only and is gone"
    if mark:
        await stop_marked(mark)
    if target.pid:
        reports.kept("/proc/%d" % pid, "the process takes no signal")
        return
    await _until(lambda: _remove_sockets(target), _FREE_S)  # stays False when the next daemon has started
    reports.stopped(target.session, pid, how)


async def _end(target: SessionEntry) -> str:
    pid = target.pid
    for number, seconds, how in (
        (signal.SIGINT, ASK_S, "ended when asked"),
        (signal.SIGKILL, _KILL_S, "killed: it did not end when asked"),
    ):
        with contextlib.suppress(OSError):
            os.kill(pid, number)
        if await _until(lambda: not target.pid, seconds):
            return how
    return "does not end"


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def _remove_sockets(target: SessionEntry) -> bool:
    """Remove a killed daemon's socket and lock. False while it may still hold them: its last thread ends late."""
    with locks_of(target.session, target.directory) as free:
        for top in registry.runtime_directories() if free else ():
            for ending in (".sock", ".lock"):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(top, target.session + ending))
    return free


def mark_of(entry: SessionEntry) -> str:
    """Return the mark of the processes that the last worker's tools have started, "" for none."""
    if not entry.directory:
        return str(entry.summary.get("mark") or "")
    summary = registry.read_summary(entry.directory)
    if isinstance(summary.get("mark"), str) and summary.get("pid") == entry.summary.get("pid"):
        return str(summary["mark"])
    try:
        return last_mark(entry.journal)
    except OSError:
        return ""


def rename(params: Json, reports: Reports) -> None:
    """Name a session, until the session itself is given another name."""
    target = _on_disk(params)
    title = " ".join(str(params.get("title") or "").split())[:_MAX_TITLE]
    named = {"title": title, "over": registry.read_summary(target.directory).get("title") or ""}
    replace_private(os.path.join(target.directory, registry.TITLE), json.dumps(named))
    reports.report("renamed", {"session": target.session})


def remove(params: Json, reports: Reports) -> None:
    """Stop and remove a session, unless a client drives it (`driven` overrides)."""
    target = _on_disk(params)
    driver = str(registry.read_summary(target.directory).get("driver") or "") if target.pid else ""
    if driver and not params.get("driven"):
        raise HostRefusal("in_use", "%s drives this session now" % driver[:200], {"do": "Look at the list again."})
    stop_all([target], reports)  # also what tools of a killed worker have left running
    with locks_of(target.session, target.directory, owns=True) as free:
        if free:
            Remover(reports, dry_run=False).session(target.directory, "asked for")
        else:
            reports.kept(target.directory, "a process has the session open")


def _on_disk(params: Json) -> SessionEntry:
    (target,) = chosen({"session": params.get("session")})
    if not target.directory or target.session != params.get("session"):
        raise HostRefusal("in_use", "this session is in memory only", {"do": "Stop it."})
    return target


YOUNG_S = 60.0  # a younger file may be about to be used
_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def age(path: str) -> float:
    return time.time() - os.lstat(path).st_mtime


def own_processes() -> Iterator[int]:
    """Yield the pids of this user's other processes; nothing without /proc."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError):
                    if os.stat("/proc/" + name).st_uid == os.getuid():
                        yield int(name)


def marked_processes() -> dict[str, list[int]]:
    """Return the pids that tools have started, by the mark of their session."""
    found: dict[str, list[int]] = {}
    for pid in own_processes():
        mark = mark_in(pid).partition(".")[0]
        if mark:
            found.setdefault(mark, []).append(pid)
    return found


def bundles_in_use() -> set[str]:
    used = {str(owner.get("bundle")) for owner in registry.live_sessions().values()}
    for pid in own_processes():
        used.update(_DIGEST.findall(text_of("/proc/%d/cmdline" % pid, most=1 << 20)))
    return used


@contextlib.contextmanager
def locks_of(session: str, directory: str = "", *, owns: bool = False) -> Iterator[bool]:
    """Take all locks of a session's daemon. False when another process has one, or may be about to take it. With
    `owns`, no other node of a shared home starts it meanwhile, either."""
    paths = [os.path.join(top, session + ".lock") for top in registry.runtime_directories()]
    if directory:
        paths.append(os.path.join(directory, "journal.jsonl"))
    with contextlib.ExitStack() as held:
        free = True
        for path in paths:
            try:
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                continue
            held.callback(os.close, fd)
            free = free and _take(fd, path)
        if free and owns:
            try:
                held.callback(take(directory, registry.read_summary(directory)).release)
            except (OSError, HostRefusal):
                free = False
        yield free


def _take(fd: int, path: str) -> bool:
    """Take a lock, unless a daemon that starts may need it: it must not find it taken."""
    try:
        if path.endswith(".lock"):
            owner = registry.read_object(path)
            if (is_alive(owner) or elsewhere(owner)) if owner else age(path) < YOUNG_S:
                return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(fd).st_ino == os.lstat(path).st_ino
    except OSError:
        return False


class Remover:
    """Removes files and reports each; with `dry_run` it only reports. Links are never followed."""

    def __init__(self, reports: Reports, dry_run: bool) -> None:
        self.reports = reports
        self.dry_run = dry_run
        self.gone: set[str] = set()  # with `dry_run`, the paths that would be removed

    def file(self, path: str, what: str, why: str) -> None:
        try:
            size = os.lstat(path).st_size
            if not self.dry_run:
                os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            self.reports.kept(path, error.strerror or str(error))
            return
        self._removed(path, what, size, why)

    def tree(self, path: str, what: str, why: str) -> None:
        size = 0
        for folder, _, names in os.walk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    size += os.lstat(os.path.join(folder, name)).st_size
        if not self.dry_run:
            failed: list[str] = []
            shutil.rmtree(path, onerror=lambda function, name, info: failed.append("%s: %s" % (name, info[1])))
            if failed and os.path.lexists(path):
                self.reports.kept(path, failed[0])
                return
        self._removed(path, what, size, why)

    def directory(self, path: str, why: str, *, empty_only: bool = False, mark: str = "") -> bool:
        """Remove a directory that is empty apart from `mark`. Otherwise report why it is kept, unless `empty_only`."""
        try:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                return False
            names = os.listdir(path)
            others = [name for name in names if name != mark and os.path.join(path, name) not in self.gone]
            if others:
                if not empty_only:
                    self.reports.kept(path, "not empty: %s" % ", ".join(sorted(others)[:5]))
                return False
            if mark in names:
                self.file(os.path.join(path, mark), "temp", why)
            if not self.dry_run:
                os.rmdir(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            self.reports.kept(path, error.strerror or str(error))
            return False
        self._removed(path, "directory", 0, why)
        return True

    def _removed(self, path: str, what: str, size: int, why: str) -> None:
        self.gone.add(path)
        self.reports.removed(path, what, size, why)

    def session(self, directory: str, why: str) -> None:
        self.worktrees(directory)
        self.tree(directory, "session", why)

    def worktrees(self, directory: str) -> None:
        trees = []
        with contextlib.suppress(OSError):
            trees = worktrees(os.path.join(directory, "journal.jsonl"))
        for tree in [tree for tree in trees if os.path.isdir(tree.path)]:
            if not tree.branch:
                self.reports.kept(tree.path, "a hook has made it for an agent")
            elif self.dry_run:
                self.reports.kept(tree.path, "an agent worked in it; it would go if nothing is changed in it")
            elif asyncio.run(remove_untouched(tree)):
                self.reports.removed(tree.path, "directory", 0, "an agent has left nothing in it")
            else:
                self.reports.kept(tree.path, "an agent has left changes in it, on the branch %s" % tree.branch)
