"""Where a session's files would be: directories, the cache of bundles, the sessions that are there."""

from __future__ import annotations

import os
import re
import stat

from .. import places
from ..registry import is_ours, runtime_directories, sessions
from .findings import BLOCK, INFO, OK, WARN, Finding, size_text, text_of
from .ground import worker_directories

_ROOM = 64 << 20
_NODES = 1000
_SHARED = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "afs",
    "fuse.sshfs",
    "9p",
    "glusterfs",
)
_ST_NOEXEC = 8
_BUNDLE = re.compile(r"[0-9a-f]{64}\.zip")


def directories() -> list[Finding]:
    """Home, state, bundles, sockets and /tmp, each as far as it exists; which of them a session would use."""
    home = places.home_directory()
    state, _ = places.durable_directory("x")
    where = [("home", home), ("state", os.path.dirname(state) if state else "")]
    where += [("bundles", worker_directories()[0] if home or os.environ.get("XDG_CACHE_HOME") else "")]
    where += [("temporary", "/tmp")]  # noqa: S108 - looked at, not trusted
    found = [_directory(name, path) for name, path in where]
    found.append(_sockets())
    return found


def _sockets() -> Finding:
    """Where sockets and locks go; made and left as a session would, without one."""
    tops = [path for path in runtime_directories() if os.path.isdir(path)]
    existed = set(tops)
    try:
        path, notes = places.runtime_directory("0" * 36)
    except places.NoPlace as error:
        return Finding(
            "sockets", BLOCK, "; ".join(error.notes), "Make /tmp or the home directory writable for this user."
        )
    if path not in existed:
        remove_made(path)
    if notes:
        return Finding("sockets", WARN, "%s is used; %s" % (path, "; ".join(notes)), "Repair the better place.")
    return Finding("sockets", OK, path)


def remove_made(path: str) -> None:
    """Take away a directory that was only made to see whether it can be."""
    try:
        made = os.path.join(path, places.MADE)
        if os.path.lexists(made):
            os.unlink(made)
        os.rmdir(path)
    except OSError:
        pass


def _directory(name: str, path: str) -> Finding:
    if not path:
        return Finding(name, WARN, "there is no home directory", "Set HOME, or let the administrator make a home.")
    there = path
    while not os.path.lexists(there) and there != "/":
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return Finding(name, WARN, "%s is no directory" % there, "Move it away: the next place is used meanwhile.")
    facts, problems, fix = [], [], ""
    facts.append(path if there == path else "%s (not there yet)" % path)
    foreign = _foreign(there, path)
    if foreign:
        problems.append(foreign)
        fix = "Move it away, or give it to this user: the next place is used meanwhile."
    error = _write_error(there)
    if error:
        problems.append("not writable: %s" % error)
        fix = "Make it writable for this user: the next place is used meanwhile, at last memory only."
    else:
        facts.append("writable")
    kind = _file_system(there)
    try:
        info = os.statvfs(there)
    except OSError as broken:
        problems.append(str(broken.strerror))
    else:
        free = info.f_bavail * info.f_frsize
        facts.append("noexec (does not matter to ccb)" if info.f_flag & _ST_NOEXEC else "exec")
        facts.append("%s free" % size_text(free))
        if info.f_files:
            facts.append("%d inodes free" % info.f_favail)
        if free < _ROOM:
            problems.append("only %s free" % size_text(free))
            fix = fix or "Free some space."
        if info.f_files and info.f_favail < _NODES:
            problems.append("only %d inodes free" % info.f_favail)
            fix = fix or "Remove some files: the file system has room for few more."
    if kind:
        facts.append(kind)
    if kind in _SHARED:
        facts.append("shared between hosts: sockets and locks stay out of it")
    if problems:
        return Finding(name, WARN, "; ".join([", ".join(facts), *problems]), fix or "Look at this file system.")
    return Finding(name, OK, ", ".join(facts))


def _foreign(there: str, path: str) -> str:
    """Why a directory that exists cannot be ours."""
    if there != path or path in ("/tmp", places.home_directory()):  # noqa: S108
        return ""
    info = os.lstat(there)
    if stat.S_ISLNK(info.st_mode):
        return "it is a link"
    return "it belongs to another user" if info.st_uid != os.getuid() else ""


def _write_error(path: str) -> str:
    """Why no file can be made in `path`, "" when it can."""
    probe = os.path.join(path, ".ccb-doctor-%d" % os.getpid())
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, b"x" * 4096)
        finally:
            os.close(fd)
            os.unlink(probe)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _file_system(path: str) -> str:
    """The type of the file system that `path` is on, "" where the system does not say."""
    real, best, kind = os.path.realpath(path), "", ""
    for line in text_of("/proc/self/mountinfo", 1 << 20).splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) > 4 and after:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, after.split()[0]
    return kind


def bundle_cache(bundle: str) -> list[Finding]:
    """Which bundle runs, from where, and how many others are kept."""
    kept = []
    for top in worker_directories():
        if is_ours(top):
            kept += [os.path.join(top, name) for name in os.listdir(top) if _BUNDLE.fullmatch(name)]
    own = [path for path in kept if os.path.basename(path) == bundle + ".zip"]
    if not own:
        return [
            Finding(
                "bundle cache",
                WARN,
                "nothing could be stored: the worker runs from memory and is sent again with every connection",
                "Make ~/.cache or /tmp writable for this user.",
            )
        ]
    size = sum(os.lstat(path).st_size for path in kept)
    return [Finding("bundle cache", OK, "%s; %d kept, %s" % (own[0], len(kept), size_text(size)))]


def running_sessions() -> list[Finding]:
    """How many sessions there are, and what they take."""
    found = sessions()
    alive = sum(entry.alive for entry in found)
    elsewhere = sorted({entry.elsewhere for entry in found if entry.elsewhere})
    text = "%d, %d of them running" % (len(found), alive)
    if elsewhere:
        text += "; some may run on %s, which shares this home" % ", ".join(elsewhere)
    return [Finding("sessions", INFO, text)]
