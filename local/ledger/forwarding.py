"""Gives the rows of the ledger to the command of a policy: each row at least once, also after a failure or a crash."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pwd
import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Self

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line

from .call_ledger import ledger_path, open_ledger

log = logging.getLogger(__name__)
_MAX_ROWS = 500
_COMMAND_S = 30.0
_MAX_SAID = 200


class LedgerForwarder(AbstractAsyncContextManager["LedgerForwarder"]):
    """Runs `command` for what was not forwarded yet, in a thread of its own: model calls never wait for it. It gets
    none of the variables of the person. Leaving it waits for the last run, at most 30 seconds."""

    def __init__(self, state: Path, command: Sequence[str], warn: Callable[[str], None]) -> None:
        self._state, self._command, self._warn = state, command, warn
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="forward the ledger")
        self._loop = asyncio.get_running_loop()
        self._due = self._told = False

    async def __aenter__(self) -> Self:
        self.wake()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.wake()
        await self._loop.run_in_executor(None, self._worker.shutdown)

    def wake(self) -> None:
        """Forward what is there now. Any thread may call this."""
        if not self._due:
            self._due = True
            self._worker.submit(self._forward)

    def _forward(self) -> None:
        self._due = False
        if not ledger_path(self._state).exists():
            return
        try:
            with open_ledger(self._state) as ledger:
                while rows := ledger.not_forwarded(_MAX_ROWS):
                    self._run("".join(json.dumps(row) + "\n" for row in rows))
                    ledger.forwarded(rows[-1]["id"])
            self._told = False
        except (CcbError, sqlite3.Error, OSError, subprocess.SubprocessError) as error:
            log.warning("rows of the ledger are not forwarded: %s", error)
            if not self._told:
                said = f"Rows of the ledger are not forwarded yet ({one_line(str(error))[:_MAX_SAID]})."
                self._loop.call_soon_threadsafe(self._warn, said)
            self._told = True

    def _run(self, text: str) -> None:
        account = pwd.getpwuid(os.getuid())
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": account.pw_dir, "USER": account.pw_name}
        command, silent = [*self._command], subprocess.DEVNULL
        subprocess.run(
            command, input=text.encode(), env=env, cwd="/", check=True, timeout=_COMMAND_S, stdout=silent, stderr=silent
        )
