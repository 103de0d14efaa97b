"""Runs the programs that the doctor asks, each in a cage of the kernel."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import time

from ..sandbox.rules import read_only_rules, workspace_rules
from ..sandbox.running import RunningCommand
from ..sandbox.server import CageServer, Mechanism
from ..sessions.paths import home_directory
from ..system.process import LIMITED

_MAX_BYTES = 2000


def said_by(argv: list[str], seconds: float = 5.0, *, any_status: bool = False, network: bool = False) -> str:
    """Run a program and return the first line of its output. Return "" when it fails (unless `any_status`), prints
    nothing, or takes more than `seconds`. Processes that it leaves behind are killed. With `network` it may use the
    network, but is run only where there is a cage for that."""
    with contextlib.closing(CageServer()) as server:
        try:
            process = _start(argv, server, network)
        except OSError:
            return ""
        return _first_line(process, seconds, any_status) if process is not None else ""


def _first_line(process: RunningCommand, seconds: float, any_status: bool) -> str:
    try:
        out, ended = _read(process.stdout.fileno(), seconds)
    finally:
        process.send(signal.SIGKILL)
        code = process.wait()
        process.close()
    good = ended and (code == 0 or (any_status and code > 0))
    return out.decode("utf-8", "replace").strip().partition("\n")[0].strip() if good else ""


def _start(argv: list[str], server: CageServer, network: bool) -> RunningCommand | None:
    """Start a program in the cage for it: one that only reads, or one that may also use the network. Without any cage,
    start it as it is, but not with the network. Raise OSError."""
    whole = [shutil.which("sh") or "/bin/sh", "-c", LIMITED + 'exec "$@" 2>/dev/null', "sh", *argv]
    environ, home, available = dict(os.environ), home_directory(), server.availability()
    if network:
        rules = workspace_rules((), environ, home, network=True)
        return server.start(whole, "/", environ, rules) if available.workspace else None
    if available.mechanism is not Mechanism.NONE:
        return server.start(whole, "/", environ, read_only_rules((), environ, home))
    return server.start(whole, "/", environ)


def _read(output: int, seconds: float) -> tuple[bytes, bool]:
    """Return the start of the output, and whether the output ended within `seconds`."""
    kept, deadline = b"", time.monotonic() + seconds
    while select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]:
        data = os.read(output, 65536)
        if not data:
            return kept, True
        kept = (kept + data)[:_MAX_BYTES]
    return kept, False
