"""Which files are in use; remove the others."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator

from ..session_store.journal_summary import worktrees
from ..session_store.process_identity import elsewhere, is_alive
from ..session_store.session_registry import live_sessions, read_object, runtime_directories
from ..subagents.worktrees import remove_untouched
from ..system.process import MARK
from .reports import Reports

YOUNG_S = 60.0  # a younger file may be about to be used
_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


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


def _of_process(pid: int, name: str) -> bytes:
    """Return a file of /proc; b"" when the process has ended."""
    with contextlib.suppress(OSError), open("/proc/%d/%s" % (pid, name), "rb") as file:
        return file.read(1 << 20)
    return b""


def marked_processes() -> dict[str, list[int]]:
    """Return the pids that tools have started, by the mark of their session."""
    found: dict[str, list[int]] = {}
    prefix = (MARK + "=").encode()
    for pid in own_processes():
        marks = [each for each in _of_process(pid, "environ").split(b"\0") if each.startswith(prefix)]
        if marks:
            mark = marks[0][len(prefix) :].decode("ascii", "replace").partition(".")[0]
            found.setdefault(mark, []).append(pid)
    return found


def name_of(pid: int) -> str:
    return _of_process(pid, "comm").decode("utf-8", "replace").strip()


def bundles_in_use() -> set[str]:
    """Return the hashes of the bundles that living daemons and bridges may still read."""
    used = {str(owner.get("bundle")) for owner in live_sessions().values()}
    for pid in own_processes():
        used.update(word.decode() for word in _DIGEST.findall(_of_process(pid, "cmdline")))
    return used


@contextlib.contextmanager
def locks_of(session: str, directory: str = "") -> Iterator[bool]:
    """Take all locks of a session's daemon. False when another process has one, or may be about to take it."""
    paths = [os.path.join(top, session + ".lock") for top in runtime_directories()]
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
            try:
                if free and _may_be_tried(path):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    free = os.fstat(fd).st_ino == os.lstat(path).st_ino
                else:
                    free = False
            except OSError:
                free = False
        yield free


def _may_be_tried(lock: str) -> bool:
    """Return whether a lock may be tried: a starting daemon must not find it taken. Raise OSError."""
    if not lock.endswith(".lock"):
        return True
    owner = read_object(lock)
    return not is_alive(owner) and not elsewhere(owner) if owner else age(lock) >= YOUNG_S


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
        """Remove the directory of a session, and its worktrees."""
        self.worktrees(directory)
        self.tree(directory, "session", why)

    def worktrees(self, directory: str) -> None:
        """Remove the untouched worktrees of a session; report the others."""
        try:
            left = [tree for tree in worktrees(os.path.join(directory, "journal.jsonl")) if os.path.isdir(tree.path)]
        except OSError:
            return
        for tree in left:
            if not tree.branch:
                self.reports.kept(tree.path, "a hook has made it for an agent")
            elif self.dry_run:
                self.reports.kept(tree.path, "an agent worked in it; it would go if nothing is changed in it")
            elif asyncio.run(remove_untouched(tree)):
                self.reports.removed(tree.path, "directory", 0, "an agent has left nothing in it")
            else:
                self.reports.kept(tree.path, "an agent has left changes in it, on the branch %s" % tree.branch)
