"""Directories, quotas, bundles."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import struct
from typing import NamedTuple

from ..session_store import session_paths
from ..session_store.session_registry import is_ours, runtime_directories, sessions, worker_directories
from .reports import BLOCK, INFO, OK, WARN, HostFinding, size_text, text_of

_GET_QUOTA = 0x800007 << 8  # QCMD(Q_GETQUOTA, USRQUOTA)
_QUOTACTL_FD = 443
_KILO = 1024
_LAYOUT = struct.Struct("=8QI")


class Quota(NamedTuple):
    """Bytes and inodes in use, and their limits. A limit of 0 means none."""

    used: int
    limit: int
    nodes: int
    max_nodes: int

    @property
    def left(self) -> int | None:
        return max(0, self.limit - self.used) if self.limit else None

    @property
    def nodes_left(self) -> int | None:
        return max(0, self.max_nodes - self.nodes) if self.max_nodes else None

    def __str__(self) -> str:
        parts = ["%s of %s" % (size_text(self.used), size_text(self.limit))] if self.limit else []
        parts += ["%d of %d files" % (self.nodes, self.max_nodes)] if self.max_nodes else []
        return "quota " + ", ".join(parts)


def of_path(path: str, device: str) -> Quota | None:
    """Return this user's quota on the file system of `path`, None without one."""
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        answer = ctypes.create_string_buffer(128)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            failed = libc.syscall(_QUOTACTL_FD, fd, _GET_QUOTA, os.getuid(), answer)
        finally:
            os.close(fd)
        if failed and ctypes.get_errno() == errno.ENOSYS:
            failed = libc.quotactl(_GET_QUOTA, os.fsencode(device), os.getuid(), answer)
    except (ImportError, OSError, AttributeError):
        return None
    return None if failed else parse_quota(answer.raw)


def parse_quota(raw: bytes) -> Quota | None:
    """Parse a `struct if_dqblk`. The lower limit counts: writes beyond the soft one are refused in the end."""
    hard, soft, used, hard_nodes, soft_nodes, nodes, _, _, _ = _LAYOUT.unpack_from(raw)
    limit = min([each * _KILO for each in (hard, soft) if each], default=0)
    max_nodes = min([each for each in (hard_nodes, soft_nodes) if each], default=0)
    return Quota(used, limit, nodes, max_nodes) if limit or max_nodes else None


_ROOM = 64 << 20
_NODES = 1000
_BUNDLE_SIZE = 300 * 1024
_SHARED = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs", "fuse.sshfs", "9p", "glusterfs",
)  # fmt: skip
_ST_NOEXEC = 8
_BUNDLE = re.compile(r"[0-9a-f]{64}\.(bundle|zip)")


def directories() -> list[HostFinding]:
    """Check the directories for home, state, bundles, sockets and /tmp."""
    home = session_paths.home_directory()
    state, _ = session_paths.durable_directory("x")
    where = [
        ("home", home),
        ("state", os.path.dirname(state) if state else ""),
        ("bundles", worker_directories()[0] if home or os.environ.get("XDG_CACHE_HOME") else ""),
        ("temporary", "/tmp"),  # noqa: S108 - looked at, not trusted
    ]
    sockets, top = _sockets()
    instead = "; sessions are kept in memory only"
    if top:
        instead = "; sessions are kept in %s/sessions, which may not outlive a restart of the host" % top
    found: list[HostFinding] = []
    causes: dict[str, str] = {}
    for name, path in where:
        there = nearest(path)
        if there in causes:
            what = "%s: as" % shown(path) if path else "as"
            each = HostFinding(name, INFO, "%s %s" % (what, causes[there]))
        else:
            each = _directory(name, path)
            if each.state == WARN:
                causes[there] = name
        if there in causes and name == "state":
            each.found += instead
        found.append(each)
    return [*found, sockets]


def _sockets() -> tuple[HostFinding, str]:
    """Return the finding about the directory for sockets, tried as a session would, and its path."""
    existed = [path for path in runtime_directories() if os.path.isdir(path)]
    fix = "Make /tmp or the home directory writable for this user."
    try:
        path, notes = session_paths.runtime_directory("0" * 36)
    except session_paths.NoPlace as error:
        text = "; ".join(error.notes)
        try:
            session_paths.memory_paths("0" * 36, [])
        except session_paths.NoPlace:
            return HostFinding("sockets", BLOCK, text, fix), ""
        return HostFinding("sockets", WARN, "in memory: nothing can be written (%s)" % text, fix), ""
    if path not in existed:  # made as a test
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(path, session_paths.MADE))
        with contextlib.suppress(OSError):
            os.rmdir(path)
    if notes:
        text = "%s is used; %s" % (path, "; ".join(notes))
        return HostFinding("sockets", WARN, text, "Repair the better place."), path
    return HostFinding("sockets", OK, path), path


def shown(path: str) -> str:
    home = session_paths.home_directory().rstrip("/")
    return "~" + path[len(home) :] if home and path.startswith(home + "/") else path


def nearest(path: str) -> str:
    while path and not os.path.lexists(path) and path != "/":
        path = os.path.dirname(path)
    return path


def _directory(name: str, path: str) -> HostFinding:
    if not path:
        return HostFinding(name, WARN, "there is no home directory", "Set HOME, or let the administrator make a home.")
    there = nearest(path)
    if name == "home" and there != path:
        fix = "Let the administrator make it (mkhomedir_helper), or set HOME."
        return HostFinding(name, WARN, "%s does not exist" % path, fix)
    if not os.path.isdir(there):
        fix = "Move it away: the next place is used meanwhile."
        return HostFinding(name, WARN, "%s is not a directory" % there, fix)
    problem, fix = _foreign(there, path), "Move it away, or give it to this user: the next place is used meanwhile."
    if not problem:
        problem, fix = _write_problem(there)
    known = path if name == "home" else shown(path)
    facts = [known if there == path else "%s (not there yet)" % known]
    facts += [] if problem else ["writable"]
    kind, device = _file_system(there)
    room, short = _room(there, device)
    facts += [*room, kind] if kind else room
    if kind in _SHARED:
        facts.append("shared between hosts: sockets and locks stay out of it")
    problems = [", ".join(facts), *filter(None, [problem]), *short]
    if problem or short:
        return HostFinding(name, WARN, "; ".join(problems), fix or "Remove some files, or ask for more room.")
    return HostFinding(name, OK, problems[0])


def _room(path: str, device: str) -> tuple[list[str], list[str]]:
    """Return texts on the free space, and on what is short."""
    try:
        info = os.statvfs(path)
    except OSError as error:
        return [], [str(error.strerror)]
    free = info.f_bavail * info.f_frsize
    facts = ["noexec (does not matter to ccb)" if info.f_flag & _ST_NOEXEC else "exec", "%s free" % size_text(free)]
    short = []
    if free < _ROOM:
        short.append("only %s free" % size_text(free) if free else "no space")
    if info.f_files:
        facts.append("%d inodes free" % info.f_favail)
        if info.f_favail < _NODES:
            short.append("only %d inodes free" % info.f_favail if info.f_favail else "no inodes")
    limits = of_path(path, device)
    if limits is not None:
        facts.append(str(limits))
        if limits.left is not None and limits.left < _ROOM:
            short.append("only %s left of the quota" % size_text(limits.left))
        if limits.nodes_left is not None and limits.nodes_left < _NODES:
            short.append("only %d files left of the quota" % limits.nodes_left)
    return facts, short


def _foreign(there: str, path: str) -> str:
    if there != path or path in ("/tmp", session_paths.home_directory()):  # noqa: S108
        return ""
    info = os.lstat(there)
    if stat.S_ISLNK(info.st_mode):
        return "it is a link"
    return "it belongs to another user" if info.st_uid != os.getuid() else ""


_WAYS_OUT = {
    errno.EROFS: "Mount it for writing",
    errno.ENOSPC: "Remove some files: its disk is full, or has no inodes left",
    errno.EDQUOT: "Remove some files, or ask for a larger quota",
    errno.EFBIG: "Raise the limit on the size of files (`ulimit -f`)",
}


def _write_problem(path: str, size: int = 4096) -> tuple[str, str]:
    """Return why a file cannot be written there, and what to do about it; ("", "") when it can."""
    probe = os.path.join(path, ".ccb-doctor-%d" % os.getpid())
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            if os.write(fd, b"x" * size) < size:
                os.write(fd, b"x" * size)  # the second write raises the reason
        finally:
            os.close(fd)
            os.unlink(probe)
    except OSError as error:
        way_out = _WAYS_OUT.get(error.errno or 0, "Make it writable for this user")
        text = "not writable: %s" % (error.strerror or error)
        return text, way_out + ": the next place is used meanwhile, at last memory only."
    return "", ""


def _file_system(path: str) -> tuple[str, str]:
    real, best, kind, device = os.path.realpath(path), "", "", ""
    for line in text_of("/proc/self/mountinfo", 1 << 20).splitlines():
        before, _, after = line.partition(" - ")
        fields, (found, _, rest) = before.split(), after.partition(" ")
        if len(fields) > 4 and after:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind, device = point, found, rest.partition(" ")[0]
    return kind, device


def bundle_cache(bundle: str) -> list[HostFinding]:
    """Report where the bundle of this ccb is stored or would be, and how many bundles are kept."""
    ours = filter(is_ours, worker_directories())
    kept = [os.path.join(top, name) for top in ours for name in os.listdir(top) if _BUNDLE.fullmatch(name)]
    problems = [(top, _store_problem(top)) for top in _stores()]
    own = next((path for path in kept if os.path.basename(path) == bundle + ".bundle"), "")
    place = os.path.dirname(own) or next((top for top, problem in problems if not problem), "")
    if not place:
        text = "nothing can be stored: the worker runs from memory and is sent again with every connection"
        refused = ["%s: %s" % (shown(top), problem) for top, problem in problems]
        return [HostFinding("bundle cache", WARN, "; ".join([text, *refused]), "Repair one of these places.")]
    size = sum(os.lstat(path).st_size for path in kept)
    count = "%d kept, %s" % (len(kept), size_text(size)) if kept else "none kept yet"
    return [HostFinding("bundle cache", OK, "%s; %s" % (shown(place), count))]


def _store_problem(top: str) -> str:
    there = nearest(top)
    if not os.path.isdir(there):
        return "%s is not a directory" % there
    steps = (path for path in (os.path.dirname(top), top) if os.path.lexists(path))
    foreign = next(filter(None, (_foreign(step, step) for step in steps)), "")
    return foreign or _write_problem(there, _BUNDLE_SIZE)[0]


def _stores() -> list[str]:
    """Return where a bundle may be stored, in the order of deploy/stub.py."""
    home, runtime = session_paths.home_directory(), os.environ.get("XDG_RUNTIME_DIR") or ""
    found = worker_directories()[:1] if home or (os.environ.get("XDG_CACHE_HOME") or "").startswith("/") else []
    tops = [os.path.join(runtime, "ccb")] if runtime.startswith("/") else []
    return found + [os.path.join(top, "worker") for top in [*tops, "/tmp/ccb-%d" % os.getuid()]]  # noqa: S108


def running_sessions() -> list[HostFinding]:
    found = sessions()
    alive = sum(entry.alive for entry in found)
    elsewhere = sorted({entry.elsewhere for entry in found if entry.elsewhere})
    text = "%d, %d of them running: `ccb ps` lists them" % (len(found), alive) if found else "none"
    if elsewhere:
        text += "; some may run on %s, which shares this home" % ", ".join(elsewhere)
    return [HostFinding("sessions", INFO, text)]
