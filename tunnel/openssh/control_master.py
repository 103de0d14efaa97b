"""A master connection of the OpenSSH client: it logs in once and carries the commands of clients. It ends when the ccb
that started it ends, even if that ccb is killed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import AuthFailed, Unreachable
from ..plain_text import neutralise
from ..transports.askpass import listens
from ..transports.command_transport import LAST_WORDS_S, StderrTail, TransportProcess, start
from ..transports.login_failures import last_words, ssh_failure
from ..transports.login_prompts import Prompts, is_told
from ..wire.dataclass import dataclass

log = logging.getLogger(__name__)

_POLL_S = 0.01
_END_S = 3.0
_GROUP_END_S = 1.0
_ENDING_WITH_STDIN = (
    'exec 3<&0; "$@" </dev/null 3<&- & p=$!; (exec 2>/dev/null; cat <&3 >&2; kill "$p") & w=$!; exec 3<&-;'
    ' wait "$p"; s=$?; kill "$w" 2>/dev/null; exit "$s"'
)
"""Runs ssh and ends it when stdin ends, as it does when ccb is killed. ControlPersist would do that too, after a
minute, but it closes the stderr of jump hosts and ProxyCommands, which they use to say where to log in."""


@dataclass(frozen=True)
class MasterCommand:
    """The ssh that makes the control `socket`. `runner` is a program that runs it, and ends it when its own stdin
    ends."""

    argv: Sequence[str]
    socket: Path
    name: str
    shown: str
    runner: Sequence[str] = ("/bin/sh", "-c", _ENDING_WITH_STDIN, "sh")


class Master:
    """A master connection that is logged in; the caller must `end` it."""

    def __init__(self, child: TransportProcess, socket: Path, listening: asyncio.Task[None]) -> None:
        self.socket = socket
        self._child = child
        self._listening = listening

    @property
    def alive(self) -> bool:
        return listens(self.socket)

    async def let_go(self) -> None:
        """Leave the connection to its runner, which has ended the process that was started here."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._child.exited()
        await _ended(self._child, self._listening)

    async def end(self) -> None:
        stdin = self._child.process.stdin
        assert stdin is not None
        try:
            stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await self._child.exited()
        finally:
            await _ended(self._child, self._listening)


async def log_in(command: MasterCommand, *, env: Mapping[str, str], prompts: Prompts, gave_up: asyncio.Event) -> Master:
    """Start the master and wait until it is logged in. Raise AuthFailed if the person gave up (`gave_up` is set), and
    what `ssh_failure` reads from ssh's output."""
    name, shown = command.name, command.shown
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    argv = [*command.runner, *command.argv]
    child = await start(argv, shown, stdin=pipe, stdout=null, env=env)
    assert child.process.stderr is not None
    tail, logged_in = StderrTail(), False

    def say(line: str) -> None:
        if logged_in:
            log.info("the ssh to %s says: %s", name, line)
        else:
            prompts.banner(line)

    listening = asyncio.create_task(tail.drain(child.process.stderr.read, say), name="stderr of a master")
    waits = [asyncio.create_task(work) for work in (child.exited(), gave_up.wait(), _exists(command.socket))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        logged_in = waits[2].done()
        if logged_in:
            return Master(child, command.socket, listening)
        if gave_up.is_set():
            raise AuthFailed(
                f"the login to {name} was cancelled",
                evidence=last_words(neutralise(tail.text())) if is_told(prompts) else neutralise(tail.text().strip()),
                do="Answer its questions, or log in with a key or an agent.",
            )
        await asyncio.wait({listening}, timeout=LAST_WORDS_S)  # a program of the person may hold it open
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


async def _exists(socket: Path) -> None:
    exists = socket.exists
    while not exists():  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)


async def _ended(child: TransportProcess, listening: asyncio.Task[None]) -> None:
    """End ssh and kill what is left of its process group: ssh itself sends a ProxyCommand only SIGHUP."""
    await child.end()
    group = child.process.pid  # not reused by the kernel while the group has a process
    with contextlib.suppress(ProcessLookupError, PermissionError):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GROUP_END_S):
                while True:
                    os.killpg(group, 0)
                    await asyncio.sleep(_POLL_S)
        os.killpg(group, signal.SIGKILL)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
