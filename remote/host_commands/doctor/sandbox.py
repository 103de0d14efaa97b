"""The check of `ccb doctor` for the cages that this host offers."""

from __future__ import annotations

from ...sandbox.server import CageServer, Mechanism
from ..findings import INFO, OK, WARN, HostFinding


def sandbox() -> list[HostFinding]:
    """Check which cages the kernel offers for commands that run without a question."""
    server = CageServer()
    try:
        available = server.availability()
    finally:
        server.close()
    if available.mechanism is Mechanism.NONE:
        found = "no cage: %s; only lines of plain words run without a question" % available.why
        fix = "Use a kernel with Landlock (Linux 5.13 or newer), or let this user make user namespaces."
        return [HostFinding("sandbox", WARN, found, fix)]
    how = "Landlock ABI %d" % available.abi if available.mechanism is Mechanism.LANDLOCK else "namespaces"
    if available.workspace:
        return [HostFinding("sandbox", OK, "read-only and workspace cage (%s)" % how)]
    return [HostFinding("sandbox", INFO, "read-only cage (%s); no workspace cage: %s" % (how, available.why))]
