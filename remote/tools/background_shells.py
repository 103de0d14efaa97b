"""The processes of a session that outlive their tool call: background commands, and what foreground commands left
running. Also the directory in which the next command runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass

from ..sandbox.cage_rules import CageRules
from ..system.host import Host
from ..system.process import Process, stop_marked
from .output import Output
from .tasks import Task, TaskEnd, TaskKind, TaskRegistry, TaskStatus

MAX_RUNNING = 32
_MAX_DESCRIPTION = 200  # characters


@dataclass(frozen=True)
class ShellStart:
    """The call that started a command. `description` is what the model says about it."""

    command: str
    description: str = ""
    tool_use_id: str = ""
    agent_id: str = ""
    cage: CageRules | None = None


@dataclass(eq=False)
class BackgroundCommand:
    """A background command. `position` is how many bytes of its output BashOutput has returned."""

    task: Task
    start: ShellStart
    process: Process
    output: Output
    position: int = 0


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
        self.by_id: dict[str, BackgroundCommand] = {}
        self._watchers: dict[asyncio.Task[None], Process] = {}

    @property
    def running(self) -> int:
        return sum(shell.task.end is None for shell in self.by_id.values())

    def move_all(self) -> bool:
        """Let every foreground command go on in the background. Return whether there is one."""
        for each in self.foreground:
            each.set()
        return bool(self.foreground)

    def add(
        self, start: ShellStart, process: Process, output: Output, ended: Callable[[], object] = lambda: None
    ) -> BackgroundCommand:
        """Take over a process that goes on in the background. `ended` is called after its end."""

        async def end(task: Task) -> TaskEnd:
            code = await process.wait()
            output.close()
            ended()
            how, status = "completed (exit code 0)", TaskStatus.COMPLETED
            if task.killed:
                how, status = "was stopped", TaskStatus.KILLED
            elif code:
                how = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
                status = TaskStatus.FAILED
            left = "" if task.killed else self.left(process, start)
            subject = f'Background command "{" ".join(task.description.split())}"'
            return TaskEnd(status, f"{subject} {how}. {left}" if left else f"{subject} {how}")

        task = self._watched(start, start.description or start.command, process, end)
        task.output_file, task.output = output.path, output
        shell = BackgroundCommand(task, start, process, output)
        self.by_id = {key: each for key, each in self.by_id.items() if self._tasks.get(key)}
        self.by_id[task.id] = shell
        self._tasks.start(task)
        return shell

    def left(self, process: Process, start: ShellStart) -> str:
        """Keep what a command has left running (`server &`) as a task, so that it can be ended. Return a line about it
        for the model, "" if nothing runs."""
        if not process.has_leftovers():
            return ""

        async def end(task: Task) -> TaskEnd:
            await process.gone()
            summary = f"{names}, left running by a command, {'was stopped' if task.killed else 'has ended'}"
            if task.killed:
                return TaskEnd(TaskStatus.KILLED, summary, told=bool(start.agent_id))
            return TaskEnd(TaskStatus.COMPLETED, summary, told=True)  # its own end starts no turn

        process.discard_output()
        names = ", ".join(process.left()) or "a process"
        task = self._watched(start, f"{names}, left running by: {' '.join(start.command.split())}", process, end)
        task.lasts = True
        self._tasks.start(task)
        return f"Still running after the command: {names}. Its task is {task.id}; TaskStop ends it."

    def _watched(
        self, start: ShellStart, description: str, process: Process, end: Callable[[Task], Awaitable[TaskEnd]]
    ) -> Task:
        """Return a new task of a process, whose end is reported. `end` waits for it, and says how it was."""

        async def stop() -> None:
            if task.lasts or process.returncode is None:  # else it has ended by itself, which is told
                task.killed = True
            await process.stop()
            await asyncio.wait({watcher})

        async def watch() -> None:
            self._tasks.finished(task, await end(task))

        task_id, description = self._tasks.new_id("bash"), description[:_MAX_DESCRIPTION]
        task = Task(task_id, TaskKind.SHELL, description, stop, start.tool_use_id, agent_id=start.agent_id)
        watcher = asyncio.get_running_loop().create_task(watch())
        self._watchers[watcher] = process
        watcher.add_done_callback(self._watchers.pop)
        return task

    def directory(self, host: Host, roots: list[str]) -> str:
        """Return the directory for the next command: where the last `cd` led, or the first root if that directory is
        gone (then `lost` names it). That may be gone, too: see `Host.start`."""
        if self.cwd != roots[0] and not os.path.isdir(host.real_path(self.cwd)):
            self.lost, self.cwd = self.cwd, roots[0]
        return self.cwd

    async def close(self) -> None:
        """End every process of the session. Returns when they are gone."""
        for shell in self.by_id.values():
            # a sub-agent that has ended reads nothing any more
            shell.task.told = shell.task.told or bool(shell.task.agent_id)
        processes = set(self._watchers.values())
        try:
            await asyncio.gather(*(process.stop() for process in processes))
            if self._session:
                await stop_marked(self._session)
        finally:
            for process in processes:
                process.kill()
            if self._watchers:
                await asyncio.wait(self._watchers)
