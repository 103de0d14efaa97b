"""The processes of a session that outlive their tool call: background commands, and what foreground commands left
running. Also the directory in which the next command runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Coroutine
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass

from ..sandbox.cage_rules import CageRules
from ..system.host import Host
from ..system.process import Process, stop_marked
from .output import Output
from .tasks import Task, TaskEnd, TaskKind, TaskRegistry, TaskStatus

MAX_RUNNING = 32
_MAX_SHELLS = 100
_MAX_DESCRIPTION = 200  # characters


@dataclass(frozen=True)
class ShellStart:
    """The call that started a background command. `description` is what the model says about it."""

    command: str
    description: str = ""
    tool_use_id: str = ""
    agent_id: str = ""


@dataclass(eq=False)
class Shell:
    """A background command. `position` is how many bytes of its output BashOutput has returned."""

    task: Task
    command: str
    process: Process
    output: Output
    cage: CageRules | None = None
    position: int = 0
    killed: bool = False

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def status(self) -> TaskStatus:
        if self.killed:
            return TaskStatus.KILLED
        if self.process.returncode is None:
            return TaskStatus.RUNNING
        return TaskStatus.COMPLETED if self.process.returncode == 0 else TaskStatus.FAILED


class BackgroundShells:
    """Owns every process that outlives its tool call; `close` ends them all. `session` is the mark of the processes
    that the host starts (see `Host.session`), by which even detached ones are found."""

    def __init__(self, cwd: str, tasks: TaskRegistry, session: str = "") -> None:
        self.cwd, self.lost = cwd, ""
        self.foreground: set[asyncio.Event] = set()
        """One for each foreground command: it is set when the command is to go on in the background."""
        self.background_after: float | None = None
        """Seconds after which a foreground command goes on in the background; None for never."""
        self._tasks = tasks
        self._session = session
        self._shells: dict[str, Shell] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._leftovers: set[Process] = set()

    @property
    def running(self) -> int:
        return sum(1 for shell in self._shells.values() if shell.status is TaskStatus.RUNNING)

    @property
    def busy(self) -> bool:
        """Whether a background command runs, or a process that a command has left behind."""
        return self.running > 0 or bool(self._leftovers)

    def move_all(self) -> bool:
        """Let every foreground command go on in the background. Return whether there is one."""
        for each in self.foreground:
            each.set()
        return bool(self.foreground)

    def add(
        self,
        start: ShellStart,
        process: Process,
        output: Output,
        cage: CageRules | None = None,
        ended: Callable[[], object] = lambda: None,
    ) -> Shell:
        """Take over a process that goes on in the background. `ended` is called after its end."""

        async def stop() -> None:
            await self.kill(shell)
            await asyncio.wait({watcher})

        task = self._task(start, start.description or start.command[:_MAX_DESCRIPTION], stop)
        task.output_file, task.read = output.path, output.last
        shell = Shell(task, start.command, process, output, cage)
        self._shells[shell.id] = shell
        finished = [each for each in self._shells.values() if each.status is not TaskStatus.RUNNING]
        for each in finished[: max(0, len(self._shells) - _MAX_SHELLS)]:
            del self._shells[each.id]
        self._tasks.start(task)
        watcher = self._own(self._watch(shell, start, ended))
        return shell

    def _task(self, start: ShellStart, description: str, stop: Callable[[], Awaitable[None]]) -> Task:
        task_id = self._tasks.new_id("bash")
        return Task(task_id, TaskKind.SHELL, description, stop, start.tool_use_id, agent_id=start.agent_id)

    def _own(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        watcher = asyncio.get_running_loop().create_task(work)
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return watcher

    async def _watch(self, shell: Shell, start: ShellStart, ended: Callable[[], object]) -> None:
        code = await shell.process.wait()
        shell.output.close()
        ended()
        subject = f'Background command "{" ".join(shell.task.description.split())}"'
        if shell.killed:
            how = "was stopped"
        elif code < 0:
            how = f"was ended by signal {-code}"
        else:
            how = "completed (exit code 0)" if code == 0 else f"failed with exit code {code}"
        left = "" if shell.killed else self.left(shell.process, start)
        self._tasks.finished(shell.task, TaskEnd(shell.status, f"{subject} {how}" + (f". {left}" if left else "")))

    def get(self, shell_id: str) -> Shell | None:
        return self._shells.get(shell_id)

    def ids(self) -> list[str]:
        return list(self._shells)

    async def kill(self, shell: Shell) -> None:
        shell.killed = shell.killed or shell.status is TaskStatus.RUNNING
        await shell.process.stop()

    def left(self, process: Process, start: ShellStart) -> str:
        """Keep what a command has left running (`server &`) as a task, so that it can be ended. Return a line about it
        for the model, "" if nothing runs."""
        if not process.has_leftovers():
            return ""
        status = TaskStatus.COMPLETED

        async def stop() -> None:
            nonlocal status
            status = TaskStatus.KILLED
            await process.stop()
            await asyncio.wait({watcher})

        async def watch() -> None:
            await process.gone()
            self._leftovers.discard(process)
            how = "was stopped" if status is TaskStatus.KILLED else "has ended"
            told = status is TaskStatus.COMPLETED or bool(start.agent_id)  # its own end starts no turn
            self._tasks.finished(task, TaskEnd(status, f"{names}, left running by a command, {how}", told=told))

        process.discard_output()
        self._leftovers.add(process)
        names = ", ".join(process.left()) or "a process"
        described = f"{names}, left running by: {' '.join(start.command.split())}"
        task = self._task(start, described[:_MAX_DESCRIPTION], stop)
        task.lasts = True
        self._tasks.start(task)
        watcher = self._own(watch())
        return f"Still running after the command: {names}. Its task is {task.id}; TaskStop ends it."

    def directory(self, host: Host, roots: list[str]) -> str:
        """Return the directory for the next command: where the last `cd` led, or the first root if that directory is
        gone (then `lost` names it). That may be gone, too: see `Host.start`."""
        if self.cwd != roots[0] and not os.path.isdir(host.real_path(self.cwd)):
            self.lost, self.cwd = self.cwd, roots[0]
        return self.cwd

    async def close(self) -> None:
        """End every process of the session. Returns when they are gone."""
        for shell in self._shells.values():
            # a sub-agent that has ended reads nothing any more
            shell.task.told = shell.task.told or bool(shell.task.agent_id)
        processes = [*(shell.process for shell in self._shells.values()), *self._leftovers]
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
