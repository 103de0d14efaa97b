"""The local transport: the same pipe as over SSH, with the worker as a child of this process's machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .command import CommandTransport


class LocalTransport(CommandTransport):
    """Runs commands under /bin/sh on this machine. `env` replaces the environment when given."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        super().__init__(
            "local",
            "sh",
            lambda command: ("/bin/sh", "-c", command),
            lambda status, said: None,
            env=os.environ if env is None else env,
        )

    @property
    def warm(self) -> bool:
        return True
