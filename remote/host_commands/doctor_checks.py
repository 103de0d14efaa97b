"""All checks of the host; then the laptop measures: `ping` is answered with `clock`, `credit` with so many bytes of
`bulk`, `data` is dropped, until `stop`, the end of input or SILENCE_S."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Callable

from ..sandbox.cage_server import CageMechanism, CageServer
from .reports import INFO, OK, WARN, HostFinding, Reports

_Check = Callable[[], "list[HostFinding]"]


def examine(reports: Reports, bundle: str) -> None:
    """Report each check as soon as it is done, then serve the laptop's measurements."""
    from . import storage_checks, system_checks

    checks: list[tuple[str, _Check]] = [
        ("system", system_checks.system),
        ("user", system_checks.user),
        ("worker python", system_checks.python),
        ("login shell", system_checks.login_shell),
        ("directories", storage_checks.directories),
        ("bundle cache", lambda: storage_checks.bundle_cache(bundle)),
        ("sessions", storage_checks.running_sessions),
        ("limits", system_checks.limits),
        ("memory", system_checks.memory),
        ("logout", system_checks.logout),
        ("sshd settings", system_checks.sshd_settings),
        ("sandbox", sandbox),
        ("tools", system_checks.tools),
        ("locale", system_checks.locale_names),
        ("secrets", system_checks.secrets),
    ]
    for name, check in checks:
        try:
            found = check()
        except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
            text = "this check failed: %s: %s" % (type(error).__name__, error)
            found = [HostFinding(name, "warn", text, "Run with --debug and report it.")]
        for each in found:
            reports.check(each)
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
                reports.report("bulk", {"x": _noise(min(left, _BLOCK))})
                left -= _BLOCK
        return bool(kind != "stop")
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _noise(size: int) -> str:
    return os.urandom((size + 1) // 2).hex()[:size]


def sandbox() -> list[HostFinding]:
    server = CageServer()
    try:
        available = server.availability()
    finally:
        server.close()
    if available.mechanism is CageMechanism.NONE:
        found = "no cage: %s; only lines of plain words run without a question" % available.why
        fix = "Use a kernel with Landlock (Linux 5.13 or newer), or let this user make user namespaces."
        return [HostFinding("sandbox", WARN, found, fix)]
    how = "Landlock ABI %d" % available.abi if available.mechanism is CageMechanism.LANDLOCK else "namespaces"
    if available.workspace:
        return [HostFinding("sandbox", OK, "read-only and workspace cage (%s)" % how)]
    return [HostFinding("sandbox", INFO, "read-only cage (%s); no workspace cage: %s" % (how, available.why))]
