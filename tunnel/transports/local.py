"""The local transport: commands run on this machine, over the same kind of pipe as over SSH."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .command import CommandTransport, PipeCommand


class LocalTransport(CommandTransport):
    """Runs commands with /bin/sh on this machine, with the environment `env` (default: that of ccb).

    `python` is the interpreter for the worker. Without one, the PATH is searched as on any host, which takes 200 ms
    where `python3` is a shim of a version manager.
    """

    def __init__(self, env: Mapping[str, str] | None = None, python: str = "") -> None:
        self.python = python
        shell = PipeCommand("local", "sh", lambda line: ("/bin/sh", "-c", line), lambda status, said: None)
        super().__init__(shell, env=os.environ if env is None else env)

    @property
    def warm(self) -> bool:
        return True
