"""Sandboxes for tests of what is decided with them: the host can make the cages that the test says."""

from __future__ import annotations

import os

from ccb.remote.permissions.modes import Cages, Sandbox
from ccb.remote.sandbox.cage_server import Availability

ALL_CAGES = Availability("Landlock", 7, True)
ONLY_READING = Availability("Landlock", 7, False, "user namespaces are forbidden")
NO_CAGES = Availability("", 0, False, "the kernel offers no Landlock")


def sandbox(
    mode: str = "read-only", offered: Availability = ALL_CAGES, *, home: str = "/nowhere", allow_net: bool = False
) -> Sandbox:
    """Return the sandbox of a session on a host that offers these cages."""
    return Sandbox(Cages(lambda: offered, dict(os.environ), home), mode, allow_net)


_FORBIDDING = """
import ctypes, os, struct
def forbid(*denied):
    arms = b"".join(struct.pack("=HBBI", 0x15, 0, 1, nr) + struct.pack("=HBBI", 6, 0, 0, 0x50000 | error)
                    for nr, error in denied)
    code = struct.pack("=HBBI", 0x20, 0, 0, 0) + arms + struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000)
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("=HxxxxxxQ", len(code) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
unshare = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
"""
NO_CAGE = _FORBIDDING + "forbid((444, 38), (unshare, 1))\n"
NO_NAMESPACES = _FORBIDDING + "forbid((unshare, 1))\n"
"""Python that makes its process, and all that it starts, see a kernel that lacks something, with a filter of system
calls."""
