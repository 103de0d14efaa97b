"""The processes of a session that outlive their tool call: background commands, and what foreground commands left
running. Also the directory in which the next command runs."""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import time
from dataclasses import field

from ccb.tunnel.wire.dataclass import dataclass

from ...sandbox.rules import CageRules
from ...system.host import Host
from ...system.process import Process, stop_marked
from ..output import Output

_log = logging.getLogger(__name__)

MAX_RUNNING = 32
_MAX_SHELLS = 100
_MAX_LEFTOVERS = 200


class Status(enum.Enum):
    """The state of a background command."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    KILLED = "killed"


@dataclass(eq=False)
class Shell:
    """A background command. `position` is how many bytes of its output BashOutput has returned. `cage` is what it runs
    in, None for no cage."""

    id: str
    command: str
    process: Process
    output: Output
    cage: CageRules | None = None
    started: float = field(default_factory=time.monotonic)
    position: int = 0
    killed: bool = False

    @property
    def status(self) -> Status:
        if self.killed:
            return Status.KILLED
        if self.process.returncode is None:
            return Status.RUNNING
        return Status.COMPLETED if self.process.returncode == 0 else Status.FAILED


class Shells:
    """Owns every process that outlives its tool call; `close` ends them all. `session` is the mark that the host gives
    to the processes it starts (see `LocalHost.session`). By this mark even detached processes are found."""

    def __init__(self, cwd: str, session: str = "") -> None:
        self.cwd = cwd
        self._session = session
        self._shells: dict[str, Shell] = {}
        self._count = 0
        self._watchers: set[asyncio.Task[None]] = set()
        self._leftovers: list[Process] = []

    @property
    def running(self) -> int:
        return sum(1 for shell in self._shells.values() if shell.status is Status.RUNNING)

    @property
    def busy(self) -> bool:
        """Whether a background command runs, or a process that a foreground command has left behind."""
        return self.running > 0 or any(each.has_leftovers() for each in self._leftovers)

    def add(self, command: str, process: Process, output: Output, cage: CageRules | None = None) -> Shell:
        """Take over a process that was started in the background."""
        self._count += 1
        shell = Shell(f"bash_{self._count}", command, process, output, cage)
        self._shells[shell.id] = shell
        finished = [each for each in self._shells.values() if each.status is not Status.RUNNING]
        for each in finished[: max(0, len(self._shells) - _MAX_SHELLS)]:
            del self._shells[each.id]
        watcher = asyncio.ensure_future(_watch(shell))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return shell

    def get(self, shell_id: str) -> Shell | None:
        return self._shells.get(shell_id)

    def ids(self) -> list[str]:
        """The ids of the known shells, oldest first."""
        return list(self._shells)

    async def kill(self, shell: Shell) -> None:
        """End a background command and everything it started."""
        shell.killed = shell.killed or shell.status is Status.RUNNING
        await shell.process.stop()

    def left(self, process: Process) -> None:
        """Keep track of the processes that a foreground command has left running (`server &`), to end them with the
        session."""
        process.discard_output()
        self._leftovers = [each for each in self._leftovers if each.has_leftovers()][-_MAX_LEFTOVERS:]
        self._leftovers.append(process)

    def directory(self, host: Host, roots: list[str]) -> str:
        """Return the directory for the next command: where the last `cd` led, or the first root if that directory is
        gone."""
        if self.cwd != roots[0] and not os.path.isdir(host.real_path(self.cwd)):
            self.cwd = roots[0]
        return self.cwd

    async def close(self) -> None:
        """End every process of the session. Returns when they are gone."""
        processes = [shell.process for shell in self._shells.values()] + self._leftovers
        alive = [each for each in processes if each.returncode is None or each.has_leftovers()]
        try:
            await asyncio.gather(*(process.stop() for process in alive))
            if self._session:
                await stop_marked(self._session)
        finally:
            for process in alive:
                process.kill()
            if self._watchers:
                await asyncio.wait(self._watchers)
            for shell in self._shells.values():
                shell.output.close()


async def _watch(shell: Shell) -> None:
    code = await shell.process.wait()
    shell.output.close()
    _log.debug("%s ended with %d", shell.id, code)
