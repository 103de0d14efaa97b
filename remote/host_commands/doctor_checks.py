"""All checks of the host; then the laptop measures: `ping` is answered with `clock`, `credit` with so many bytes of
`bulk`, `data` is dropped, until `stop`, the end of input or SILENCE_S."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import locale
import os
import platform
import pwd
import re
import resource
import select
import shutil
import stat
import struct
import sys
import time
from functools import partial
from typing import NamedTuple

from ..daemon import logout as logind
from ..sandbox.cage_rules import read_only_rules
from ..sandbox.cage_server import CageServer
from ..session_store import session_paths
from ..session_store.session_paths import home_directory
from ..session_store.session_registry import is_ours, runtime_directories, sessions, worker_directories
from ..system.host import Host
from ..system.process import LIMITED
from .reports import BLOCK, INFO, OK, WARN, HostFinding, Reports, size_text, text_of
from .stopping import own_processes

_MIN_FILES, _GOOD_FILES = 18, 256
_MIN_TASKS, _GOOD_TASKS = 4, 64
_FILE_SIZE_GOOD = 64 << 20
_ADDRESSES_GOOD = 512 << 20
_MEMORY_GOOD = 256 << 20
_SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_UNLIMITED = resource.RLIM_INFINITY
_MAX_BYTES = 2000


def examine(reports: Reports, bundle: str) -> None:
    where = (directories, partial(bundle_cache, bundle), running_sessions)
    for check in (about, *where, open_files, processes, sizes, memory, logout, sandbox, tools, locale_names, secrets):
        try:
            found = check()
        except (OSError, ValueError, LookupError, AttributeError) as error:  # it must not hide the others
            name = getattr(check, "__name__", "bundle_cache").replace("_", " ")
            text = "this check failed: %s: %s" % (type(error).__name__, error)
            found = [HostFinding(name, WARN, text, "Run with --debug and report it.")]
        for each in found:
            reports.report("check", vars(each))
    serve(reports)


SILENCE_S = 15.0
_BLOCK = 48 * 1024
_MAX_BULK = 64 * 1024 * 1024
_MAX_LINE = 512 * 1024


def serve(reports: Reports, fd: int = 0) -> None:
    reports.report("ready", {})
    pending = b""
    while select.select([fd], [], [], SILENCE_S)[0]:
        try:
            data = os.read(fd, 256 * 1024)
        except OSError:
            return
        *lines, pending = (pending + data).split(b"\n")
        if not data or len(pending) > _MAX_LINE or not all(_answer(line, reports) for line in lines):
            return


def _answer(line: bytes, reports: Reports) -> bool:
    if line.startswith(b'{"t":"data"'):
        return True
    try:
        frame = json.loads(line)
        kind = frame.get("t")
        if kind == "ping":
            reports.report("clock", {"n": int(frame["n"]), "now": time.time()})
        elif kind == "credit":
            left = min(_MAX_BULK, int(frame["bytes"]))
            while left > 0:
                size = min(left, _BLOCK)
                noise = os.urandom((size + 1) // 2).hex()[:size]  # compression shrinks it by half at most
                reports.report("bulk", {"x": noise})
                left -= _BLOCK
        return bool(kind != "stop")
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def sandbox() -> list[HostFinding]:
    with contextlib.closing(CageServer()) as server:
        available = server.availability()
    if not available.mechanism:
        found = "no cage: %s; only lines of plain words run without a question" % available.why
        fix = "Use a kernel with Landlock (Linux 5.13 or newer), or let this user make user namespaces."
        return [HostFinding("sandbox", WARN, found, fix)]
    how = "Landlock ABI %d" % available.abi if available.abi else available.mechanism
    if available.workspace:
        return [HostFinding("sandbox", OK, "read-only and workspace cage (%s)" % how)]
    return [HostFinding("sandbox", INFO, "read-only cage (%s); no workspace cage: %s" % (how, available.why))]


def about() -> list[HostFinding]:
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)', text_of("/etc/os-release"), re.MULTILINE)
    libc = " ".join(platform.libc_ver()).strip() or "no glibc"
    uname, uid = os.uname(), os.getuid()
    parts = [uname.nodename, uname.sysname, uname.release, uname.machine, name.group(1) if name else "", libc]
    try:
        entry = pwd.getpwuid(uid)
        user, shell = "%s (uid %d)" % (entry.pw_name, uid), entry.pw_shell or "/bin/sh"
    except KeyError:
        user, shell = "uid %d has no entry in the user database" % uid, os.environ.get("SHELL") or "unknown"
    return [
        HostFinding("system", INFO, ", ".join(filter(None, parts))),
        HostFinding("user", OK if uid else INFO, user + ("" if uid else ": the agent can do everything here")),
        HostFinding("worker python", OK, "%s %s" % (sys.executable, platform.python_version())),
        HostFinding("login shell", INFO, shell),
    ]


def open_files() -> list[HostFinding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = "%s open files (hard limit %s)" % (_number(soft), _number(hard))
    state = OK if soft == _UNLIMITED or soft >= _GOOD_FILES else WARN if soft >= _MIN_FILES else BLOCK
    fix = "Raise it with `ulimit -n 1024` in the start-up file of the shell, or in /etc/security/limits.conf."
    return [HostFinding("nofile", state, text, fix)]


def sizes() -> list[HostFinding]:
    found = []
    for name, which, good, flag in (
        ("file size", resource.RLIMIT_FSIZE, _FILE_SIZE_GOOD, "-f"),
        ("address space", resource.RLIMIT_AS, _ADDRESSES_GOOD, "-v"),
    ):
        soft, _ = resource.getrlimit(which)
        if soft != _UNLIMITED:
            state = WARN if soft < good else OK
            found.append(HostFinding(name, state, "limited to %s" % size_text(soft), "Raise it: `ulimit %s`." % flag))
    return found


def processes() -> list[HostFinding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    mine = 1
    for pid in own_processes():
        with contextlib.suppress(OSError):
            mine += len(os.listdir("/proc/%d/task" % pid))
    text = "%d processes and threads of this user, limit %s" % (mine, _number(soft))
    left = soft - mine if soft != _UNLIMITED and os.getuid() else _GOOD_TASKS
    state = OK if left >= _GOOD_TASKS else WARN if left >= _MIN_TASKS else BLOCK
    return [HostFinding("processes", state, text, "End processes of this user, or raise the limit: `ulimit -u`.")]


def memory() -> list[HostFinding]:
    available = re.search(r"^MemAvailable:\s+(\d+) kB", text_of("/proc/meminfo"), re.MULTILINE)
    if not available:
        return []
    size = int(available.group(1)) * 1024
    state = OK if size >= _MEMORY_GOOD else WARN
    fix = "End something large: a worker takes about 30M."
    return [HostFinding("memory", state, "%s available" % size_text(size), fix)]


def logout() -> list[HostFinding]:
    kills, lingers, scope = logind.kills(), session_paths.lingers(), session_paths.in_login_scope()
    text = "KillUserProcesses %s, linger %s" % ("yes" if kills else "no", "on" if lingers else "off")
    if kills and scope and not lingers:
        text += ": sessions end with their connection"
        return [HostFinding("logout", WARN, text, "Run once: loginctl enable-linger")]
    return [HostFinding("logout", OK, text + (": sessions are moved out of the login" if kills and scope else ""))]


def tools() -> list[HostFinding]:
    found = []
    for name, state, missing, fix in (
        ("bash", WARN, "not there: commands run in sh", "Install bash."),
        ("git", WARN, "not there: the model sees no branches and changes", "Install git."),
        ("rg", INFO, "not there: searching takes longer in large trees, with the same results", "Install ripgrep."),
    ):
        path = shutil.which(name)
        if path is not None:
            version = said_by([path, "--version"])
            missing, fix = "%s does not run" % path, "Repair or remove %s." % path
            state, missing = (OK, "%s: %s" % (path, version)) if version else (WARN, missing)
        found.append(HostFinding(name, state, missing, fix))
    return found


def locale_names() -> list[HostFinding]:
    given = {name: os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)}
    text = ", ".join("%s=%s" % each for each in given.items()) or "none is set"
    try:
        locale.setlocale(locale.LC_ALL, "")
        charset = locale.nl_langinfo(locale.CODESET)
    except locale.Error:
        fix = "Generate it on the host, or set LANG=C.UTF-8."
        return [HostFinding("locale", WARN, text + ": not installed here", fix)]
    state = OK if charset.upper().replace("-", "") == "UTF8" else INFO
    fix = "Set LANG=C.UTF-8 on the host if programs write names wrong; ccb does not need it."
    return [HostFinding("locale", state, "%s (%s)" % (text, charset), fix)]


def secrets() -> list[HostFinding]:
    names = [name for name in _SECRETS if os.environ.get(name)]
    if names:
        fix = "Remove it from the start-up files of the host: the key stays on the laptop."
        return [HostFinding("secrets", WARN, "%s is set in the environment of this host" % ", ".join(names), fix)]
    return [HostFinding("secrets", OK, "no model credential in the environment")]


def _number(limit: int) -> str:
    return "unlimited" if limit == _UNLIMITED else str(limit)


def said_by(argv: list[str], seconds: float = 5.0) -> str:
    """Return the first line that a program prints, read-only in a cage; "" when it fails or takes too long."""
    whole = [shutil.which("sh") or "/bin/sh", "-c", LIMITED + 'exec "$@" 2>/dev/null', "sh", *argv]
    with contextlib.closing(Host()) as host:
        caged = host.cages().mechanism
        rules = read_only_rules((), os.environ, home_directory()) if caged else None
        try:
            code, printed = asyncio.run(host.output(whole, seconds, _MAX_BYTES, cage=rules))
        except (OSError, RuntimeError):  # the latter where the host allows no more threads
            return ""
    return printed.decode("utf-8", "replace").strip().partition("\n")[0].strip() if code == 0 else ""


_GET_QUOTA = 0x800007 << 8  # QCMD(Q_GETQUOTA, USRQUOTA)
_QUOTACTL_FD = 443
_KILO = 1024
_LAYOUT = struct.Struct("=8QI")


class Quota(NamedTuple):
    used: int
    limit: int
    nodes: int
    max_nodes: int

    def __str__(self) -> str:
        parts = ["%s of %s" % (size_text(self.used), size_text(self.limit))] if self.limit else []
        parts += ["%d of %d files" % (self.nodes, self.max_nodes)] if self.max_nodes else []
        return "quota " + ", ".join(parts)


def of_path(path: str, device: str) -> Quota | None:
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
    problem, fix = _problem(path)
    if not os.path.isdir(there):
        return HostFinding(name, WARN, problem, fix)
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
    quota = of_path(path, device)
    if quota is not None:
        facts.append(str(quota))
        left, nodes_left = max(0, quota.limit - quota.used), max(0, quota.max_nodes - quota.nodes)
        if quota.limit and left < _ROOM:
            short.append("only %s left of the quota" % size_text(left))
        if quota.max_nodes and nodes_left < _NODES:
            short.append("only %d files left of the quota" % nodes_left)
    return facts, short


_WAYS_OUT = {
    errno.EROFS: "Mount it for writing",
    errno.ENOSPC: "Remove some files: its disk is full, or has no inodes left",
    errno.EDQUOT: "Remove some files, or ask for a larger quota",
    errno.EFBIG: "Raise the limit on the size of files (`ulimit -f`)",
}


def _problem(path: str, size: int = 4096) -> tuple[str, str]:
    """Return why nothing can be kept at `path`, and what to do about it; ("", "") when it can."""
    there = nearest(path)
    if not os.path.isdir(there):
        return "%s is not a directory" % there, "Move it away: the next place is used meanwhile."
    info = os.lstat(there)
    if there == path and path not in ("/tmp", session_paths.home_directory()):  # noqa: S108
        foreign = "belongs to another user" if info.st_uid != os.getuid() else ""
        foreign = "is a link" if stat.S_ISLNK(info.st_mode) else foreign
        if foreign:
            return "it " + foreign, "Move it away, or give it to this user: the next place is used meanwhile."
    try:
        session_paths.try_to_write(there, size)
    except OSError as error:
        way_out = _WAYS_OUT.get(error.errno or 0, "Make it writable for this user")
        text = "not writable: %s" % (error.strerror or error)
        return text, way_out + ": the next place is used meanwhile, at last memory only."
    return "", ""


def _file_system(path: str) -> tuple[str, str]:
    real, best, kind, device = os.path.realpath(path), "", "", ""
    for line in text_of("/proc/self/mountinfo", most=1 << 20).splitlines():
        before, _, after = line.partition(" - ")
        fields, (found, _, rest) = before.split(), after.partition(" ")
        if len(fields) > 4 and after:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind, device = point, found, rest.partition(" ")[0]
    return kind, device


def bundle_cache(bundle: str) -> list[HostFinding]:
    ours = filter(is_ours, worker_directories())
    kept = [os.path.join(top, name) for top in ours for name in os.listdir(top) if _BUNDLE.fullmatch(name)]
    tops = _stores()
    problems = [_problem(os.path.dirname(top), _BUNDLE_SIZE)[0] or _problem(top, _BUNDLE_SIZE)[0] for top in tops]
    own = next((path for path in kept if os.path.basename(path) == bundle + ".bundle"), "")
    place = os.path.dirname(own) or next((top for top, problem in zip(tops, problems) if not problem), "")
    if not place:
        text = "nothing can be stored: the worker runs from memory and is sent again with every connection"
        refused = ["%s: %s" % (shown(top), problem) for top, problem in zip(tops, problems)]
        return [HostFinding("bundle cache", WARN, "; ".join([text, *refused]), "Repair one of these places.")]
    size = sum(os.lstat(path).st_size for path in kept)
    count = "%d kept, %s" % (len(kept), size_text(size)) if kept else "none kept yet"
    return [HostFinding("bundle cache", OK, "%s; %s" % (shown(place), count))]


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
