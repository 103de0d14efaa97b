"""Gives the rows of the ledger to the command of a policy: each row at least once, also after a failure or a crash."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line

from ..terminal.stdio import in_thread
from .call_ledger import ledger_path, open_ledger

_MAX_ROWS = 500
_EVERY_S, _COMMAND_S = 60.0, 30.0


@asynccontextmanager
async def forwarding(state: Path, command: Sequence[str], warn: Callable[[str], None]) -> AsyncIterator[None]:
    """Run `command` for what was not forwarded yet: now, each minute, and on leaving. Model calls never wait for it."""
    left = asyncio.Event()
    task = asyncio.create_task(_forward_until(left, state, command, warn), name="forward the ledger")
    try:
        yield
    finally:
        left.set()
        await task


async def _forward_until(left: asyncio.Event, state: Path, command: Sequence[str], warn: Callable[[str], None]) -> None:
    last = told = False
    while not last:
        last = left.is_set()
        try:
            await in_thread(lambda: _forward(state, command))
        except (CcbError, sqlite3.Error, OSError, subprocess.SubprocessError) as error:
            if not told:
                warn(f"Rows of the ledger are not forwarded yet ({one_line(str(error))}).")
            told = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_EVERY_S):
                await left.wait()


def _forward(state: Path, command: Sequence[str]) -> None:
    """Give all rows that are due to the command. No variable and no file below HOME changes what it does."""
    if not ledger_path(state).exists():
        return
    env, silent = {"PATH": os.defpath}, subprocess.DEVNULL
    with open_ledger(state) as ledger:
        while rows := ledger.not_forwarded(_MAX_ROWS):
            text = "".join(json.dumps(row) + "\n" for row in rows).encode()
            subprocess.run(
                command, input=text, env=env, cwd="/", check=True, timeout=_COMMAND_S, stdout=silent, stderr=silent
            )
            ledger.forwarded(rows[-1]["id"])
