"""A master connection of the OpenSSH client: logs in once, and carries the commands of clients that come to its socket. It lives
as long as the ccb that made it, however that ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import AuthFailed, Unreachable
from ..login.askpass import listens
from ..login.command_failures import last_words, ssh_failure
from ..login.prompter import Prompts, is_told
from ..plain_text import neutralise
from ..transports.command import Child, start
from ..transports.stderr_tail import LAST_WORDS_S, StderrTail

log = logging.getLogger(__name__)

_LOOK_S = 0.01
_END_S = 3.0
_LEAVE_S = 1.0
_WATCHED = (
    'exec 3<&0; "$@" </dev/null 3<&- & p=$!; (exec 2>/dev/null; cat <&3 >&2; kill "$p") & w=$!; exec 3<&-;'
    ' wait "$p"; s=$?; kill "$w" 2>/dev/null; exit "$s"'
)
"""Ends ssh when stdin ends. ControlPersist would end it a minute after a ccb that was killed, but it takes their stderr away from
jump hosts and ProxyCommands, who use it to say where to log in."""


class Master:
    """Made by `log_in`; `end` it."""

    def __init__(self, child: Child, socket: Path, listening: asyncio.Task[None]) -> None:
        self.socket = socket
        self._child = child
        self._listening = listening

    @property
    def alive(self) -> bool:
        return listens(self.socket)

    async def end(self) -> None:
        """End the connection and what leads to it."""
        stdin = self._child.process.stdin
        assert stdin is not None
        try:
            stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._child.exited(), _END_S)
        finally:
            await _ended(self._child, self._listening)


async def log_in(
    argv: Sequence[str],
    socket: Path,
    *,
    name: str,
    shown: str,
    env: Mapping[str, str],
    prompts: Prompts,
    gave_up: asyncio.Event,
) -> Master:
    """Start `argv`, an ssh that is to make the control socket `socket`, and wait until it is logged in. What it and hosts on the
    way say is shown by `prompts`. Raises AuthFailed when the person gave up, and what `ssh_failure` makes of ssh's words."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    child = await start(["/bin/sh", "-c", _WATCHED, "sh", *argv], shown, stdin=pipe, stdout=null, env=env)
    assert child.process.stderr is not None
    tail, logged_in = StderrTail(), False

    def say(line: str) -> None:
        if logged_in:
            log.info("the ssh to %s says: %s", name, line)
        else:
            prompts.banner(line)

    listening = asyncio.create_task(tail.drain(child.process.stderr.read, say), name="stderr of a master")
    waits = [asyncio.create_task(work) for work in (child.exited(), gave_up.wait(), _made(socket))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        logged_in = waits[2].done()
        if logged_in:
            return Master(child, socket, listening)
        if gave_up.is_set():
            raise AuthFailed(
                f"the login to {name} was given up",
                evidence=last_words(neutralise(tail.text())) if is_told(prompts) else neutralise(tail.text().strip()),
                do="Answer what it asks, or let a key or an agent log in.",
            )
        await asyncio.wait({listening}, timeout=LAST_WORDS_S)  # a program of theirs may stay and hold it
        said, status = neutralise(tail.text().strip()), await child.exited()
        raise ssh_failure(name, status, said, shown, told=is_told(prompts)) or Unreachable(
            f"no SSH connection to {name}",
            evidence=said or f"ssh ended with status {status}.",
            do=f"Make `{shown}` work first.",
        )
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        if not logged_in:
            await _ended(child, listening)


async def _made(socket: Path) -> None:
    """ssh makes its socket when it is logged in, in one step, and tells nobody."""
    there = socket.exists
    while not there():  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)


async def _ended(child: Child, listening: asyncio.Task[None]) -> None:
    """End it and what is left of its group: ssh only asks a ProxyCommand to go (SIGHUP)."""
    await child.end()
    if not await _left(child.process.pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process.pid, signal.SIGKILL)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def _left(group: int) -> bool:
    """Whether everybody has left a process group in time; its number is nobody else's before."""
    try:
        async with asyncio.timeout(_LEAVE_S):
            while True:
                os.killpg(group, 0)
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        return False
    except (ProcessLookupError, PermissionError):
        return True
