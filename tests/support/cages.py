"""Sandboxes for tests of what is decided with them: the host can make the cages that the test says."""

from __future__ import annotations

import os

from ccb.remote.permissions.sandbox_mode import Cages, Sandbox
from ccb.remote.sandbox.server import Availability, Mechanism

ALL_CAGES = Availability(Mechanism.LANDLOCK, 7, True)
ONLY_READING = Availability(Mechanism.LANDLOCK, 7, False, "user namespaces are forbidden")
NO_CAGES = Availability(Mechanism.NONE, 0, False, "the kernel offers no Landlock")


def sandbox(
    mode: str = "read-only", offered: Availability = ALL_CAGES, *, home: str = "/nowhere", allow_net: bool = False
) -> Sandbox:
    """Return the sandbox of a session on a host that offers these cages."""
    return Sandbox(Cages(lambda: offered, dict(os.environ), home), mode, allow_net)
