"""All checks of the host but those of directories; then the laptop measures: `ping` is answered with `clock`, `credit`
with so many bytes of `bulk`, `data` is dropped, until `stop`, the end of input or SILENCE_S."""

from __future__ import annotations

import contextlib
import glob
import json
import locale
import os
import platform
import pwd
import re
import resource
import select
import shutil
import signal
import sys
import time
from typing import Callable

from ..daemon import logout as logind
from ..sandbox.cage_rules import read_only_rules
from ..sandbox.cage_server import CageMechanism, CageServer
from ..session_store import session_paths
from ..session_store.session_paths import home_directory
from ..system.process import LIMITED
from .reports import BLOCK, INFO, OK, WARN, HostFinding, Reports, size_text, text_of
from .stopping import own_processes

_MIN_FILES, _GOOD_FILES = 18, 256
_MIN_TASKS, _GOOD_TASKS = 4, 64
_FILE_SIZE_GOOD = 64 << 20
_ADDRESSES_GOOD = 512 << 20
_MEMORY_GOOD = 256 << 20
_SSHD = (
    "maxsessions", "maxstartups", "allowtcpforwarding", "allowstreamlocalforwarding", "disableforwarding",
    "forcecommand", "permitopen", "clientaliveinterval", "clientalivecountmax", "rekeylimit", "compression",
    "chrootdirectory",
)  # fmt: skip
_SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_UNLIMITED = resource.RLIM_INFINITY
_MAX_BYTES = 2000


def examine(reports: Reports, bundle: str) -> None:
    """Report each check as soon as it is done, then serve the laptop's measurements."""
    from . import storage_checks

    checks: list[tuple[str, Callable[[], list[HostFinding]]]] = [
        ("system", system),
        ("user", user),
        ("worker python", python),
        ("login shell", login_shell),
        ("directories", storage_checks.directories),
        ("bundle cache", lambda: storage_checks.bundle_cache(bundle)),
        ("sessions", storage_checks.running_sessions),
        ("limits", limits),
        ("memory", memory),
        ("logout", logout),
        ("sshd settings", sshd_settings),
        ("sandbox", sandbox),
        ("tools", tools),
        ("locale", locale_names),
        ("secrets", secrets),
    ]
    for name, check in checks:
        try:
            found = check()
        except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
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
    if available.mechanism is CageMechanism.NONE:
        found = "no cage: %s; only lines of plain words run without a question" % available.why
        fix = "Use a kernel with Landlock (Linux 5.13 or newer), or let this user make user namespaces."
        return [HostFinding("sandbox", WARN, found, fix)]
    how = "Landlock ABI %d" % available.abi if available.mechanism is CageMechanism.LANDLOCK else "namespaces"
    if available.workspace:
        return [HostFinding("sandbox", OK, "read-only and workspace cage (%s)" % how)]
    return [HostFinding("sandbox", INFO, "read-only cage (%s); no workspace cage: %s" % (how, available.why))]


def system() -> list[HostFinding]:
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)', text_of("/etc/os-release"), re.MULTILINE)
    libc = " ".join(platform.libc_ver()).strip() or "no glibc"
    uname = os.uname()
    parts = [uname.nodename, uname.sysname, uname.release, uname.machine, name.group(1) if name else "", libc]
    return [HostFinding("system", INFO, ", ".join(part for part in parts if part))]


def user() -> list[HostFinding]:
    uid = os.getuid()
    try:
        text = "%s (uid %d)" % (pwd.getpwuid(uid).pw_name, uid)
    except KeyError:
        text = "uid %d has no entry in the user database" % uid
    if uid == 0:
        return [HostFinding("user", INFO, text + ": the agent can do everything here")]
    return [HostFinding("user", OK, text)]


def python() -> list[HostFinding]:
    return [HostFinding("worker python", OK, "%s %s" % (sys.executable, platform.python_version()))]


def login_shell() -> list[HostFinding]:
    try:
        shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        shell = os.environ.get("SHELL") or "unknown"
    return [HostFinding("login shell", INFO, shell)]


def limits() -> list[HostFinding]:
    return [_files(), _processes(), *_sizes()]


def _files() -> HostFinding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = "%s open files (hard limit %s)" % (_number(soft), _number(hard))
    if soft != _UNLIMITED and soft < _GOOD_FILES:
        state = BLOCK if soft < _MIN_FILES else WARN
        fix = "Raise it with `ulimit -n 1024` in the start-up file of the shell, or in /etc/security/limits.conf."
        return HostFinding("nofile", state, text, fix)
    return HostFinding("nofile", OK, text)


def _sizes() -> list[HostFinding]:
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


def _processes() -> HostFinding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    mine = 1
    for pid in own_processes():
        with contextlib.suppress(OSError):
            mine += len(os.listdir("/proc/%d/task" % pid))
    text = "%d processes and threads of this user, limit %s" % (mine, _number(soft))
    room = [] if soft == _UNLIMITED or os.getuid() == 0 else [soft - mine]
    for where, most, now in tasks():
        text += "; TasksMax of %s %d, %d in use" % (where, most, now)
        room.append(most - now)
    if room and min(room) < _GOOD_TASKS:
        state = BLOCK if min(room) < _MIN_TASKS else WARN
        fix = "End processes of this user, or raise the limit: `ulimit -u`, or TasksMax of the user's slice."
        return HostFinding("processes", state, text, fix)
    return HostFinding("processes", OK, text)


def tasks(root: str = "/") -> list[tuple[str, int, int]]:
    """Return (control group, task limit, tasks now) for each limited control group of this process."""
    found = []
    for line in text_of(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "pids" not in controllers.split(","):
            continue
        top = os.path.join(root, "sys/fs/cgroup", "pids" if controllers else "")
        while path:
            group = os.path.join(top, path.strip("/"))
            most = text_of(os.path.join(group, "pids.max")).strip()
            now = text_of(os.path.join(group, "pids.current")).strip()
            if most.isdigit() and now.isdigit():
                found.append((os.path.basename(path) or "the container", int(most), int(now)))
            path = os.path.dirname(path) if path != "/" else ""
    return found


def memory() -> list[HostFinding]:
    available = re.search(r"^MemAvailable:\s+(\d+) kB", text_of("/proc/meminfo"), re.MULTILINE)
    if not available:
        return []
    size = int(available.group(1)) * 1024
    if size < _MEMORY_GOOD:
        fix = "End something large: a worker takes about 30M."
        return [HostFinding("memory", WARN, "%s available" % size_text(size), fix)]
    return [HostFinding("memory", OK, "%s available" % size_text(size))]


def logout() -> list[HostFinding]:
    kills, lingers, scope = logind.kills(), session_paths.lingers(), session_paths.in_login_scope()
    text = "KillUserProcesses %s, linger %s" % ("yes" if kills else "no", "on" if lingers else "off")
    if kills and scope and not lingers:
        text += ": sessions end with their connection"
        return [HostFinding("logout", WARN, text, "Run once: loginctl enable-linger")]
    return [HostFinding("logout", OK, text + (": sessions are moved out of the login" if kills and scope else ""))]


def sshd_settings() -> list[HostFinding]:
    """Show the sshd settings that matter to ccb, if this user may read them."""
    found: list[str] = []
    unreadable = []
    for path in ["/etc/ssh/sshd_config", *sorted(glob.glob("/etc/ssh/sshd_config.d/*.conf"))]:
        if not os.path.exists(path):
            continue
        if not os.access(path, os.R_OK):
            unreadable.append(path)
            continue
        matched = ""
        for line in text_of(path).splitlines():
            name, _, value = line.strip().replace("=", " ", 1).partition(" ")
            if name.lower() == "match":
                matched = " (Match %s)" % value.strip()
            elif name.lower() in _SSHD:
                found.append("%s %s%s" % (name, value.strip(), matched))
    texts = [", ".join(found), "not readable: %s" % ", ".join(unreadable) if unreadable else ""]
    return [HostFinding("sshd settings", INFO, "; ".join(filter(None, texts)) or "nothing that matters is set")]


def tools() -> list[HostFinding]:
    found = []
    for name, state, missing, fix in (
        ("bash", WARN, "not there: commands run in sh", "Install bash."),
        ("git", WARN, "not there: the model sees no branches and changes", "Install git."),
        ("rg", INFO, "not there: searching takes longer in large trees, with the same results", "Install ripgrep."),
    ):
        path = shutil.which(name)
        if path is None:
            found.append(HostFinding(name, state, missing, fix))
            continue
        version = said_by([path, "--version"])
        if version:
            found.append(HostFinding(name, OK, "%s: %s" % (path, version)))
        else:
            found.append(HostFinding(name, WARN, "%s does not run" % path, "Repair or remove %s." % path))
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
    if charset.upper().replace("-", "") == "UTF8":
        return [HostFinding("locale", OK, "%s (%s)" % (text, charset))]
    fix = "Set LANG=C.UTF-8 on the host if programs write names wrong; ccb does not need it."
    return [HostFinding("locale", INFO, "%s (%s)" % (text, charset), fix)]


def secrets() -> list[HostFinding]:
    names = [name for name in _SECRETS if os.environ.get(name)]
    if names:
        fix = "Remove it from the start-up files of the host: the key stays on the laptop."
        return [HostFinding("secrets", WARN, "%s is set in the environment of this host" % ", ".join(names), fix)]
    return [HostFinding("secrets", OK, "no model credential in the environment")]


def _number(limit: int) -> str:
    return "unlimited" if limit == _UNLIMITED else str(limit)


def said_by(argv: list[str], seconds: float = 5.0) -> str:
    """Return the first line that a program prints; "" when it fails or takes too long. It can only read, where there is
    a cage, and is ended with all that it started."""
    whole = [shutil.which("sh") or "/bin/sh", "-c", LIMITED + 'exec "$@" 2>/dev/null', "sh", *argv]
    environ, kept, code = dict(os.environ), b"", -1
    with contextlib.closing(CageServer()) as server:
        caged = server.availability().mechanism is not CageMechanism.NONE
        rules = read_only_rules((), environ, home_directory()) if caged else None
        try:
            process = server.start(whole, "/", environ, rules)
        except OSError:
            return ""
        output, deadline = process.stdout.fileno(), time.monotonic() + seconds
        try:
            while select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]:
                data = os.read(output, 65536)
                if not data:
                    code = 0
                    break
                kept = (kept + data)[:_MAX_BYTES]
        finally:
            process.send(signal.SIGKILL)
            code = process.wait() or code
            process.close()
    return kept.decode("utf-8", "replace").strip().partition("\n")[0].strip() if code == 0 else ""
