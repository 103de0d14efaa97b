"""The registry of a session's tasks: what runs in the background, how it ended, and how to stop it."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Awaitable
from dataclasses import field, replace
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT

from .output import Output

_MAX_KEPT = 100  # tasks that have ended


class TaskKind(enum.Enum):
    """What a task is. The values are the public `task_type`."""

    SHELL = "local_bash"
    AGENT = "local_agent"


class TaskStatus(enum.Enum):
    """The state of a task, as the model reads it."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    KILLED = "killed"

    @property
    def public(self) -> str:
        """The status in a public message."""
        return "stopped" if self is TaskStatus.KILLED else self.value


@dataclass(frozen=True)
class TaskEnd:
    """How a task ended. `summary` is one line; `result` and `usage` are those of an agent. `told`: the model knows it
    already, as after a call that stopped the task, so it gets no notification. `at` is monotonic."""

    status: TaskStatus
    summary: str
    result: str = ""
    usage: Json | None = None
    told: bool = False
    at: float = 0.0


@dataclass(eq=False)
class Task:
    """One task. `agent_id` is the agent that gets the notification of its end. `stop` ends it and returns when nothing
    of it is left; whoever runs the task reports its end to the registry. `output` is that of a command. `lasts`: a
    command has left it running, as a server, so nothing waits for its end. `killed`: somebody stops it."""

    id: str
    kind: TaskKind
    description: str
    stop: Callable[[], Awaitable[None]]
    tool_use_id: str = ""
    output_file: str = ""
    agent_id: str = MAIN_AGENT
    public: Json = field(default_factory=dict)
    output: Output | None = None
    started: float = field(default_factory=time.monotonic)
    told: bool = False
    lasts: bool = False
    killed: bool = False
    end: TaskEnd | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the task has ended."""

    @property
    def status(self) -> TaskStatus:
        return TaskStatus.RUNNING if self.end is None else self.end.status

    @property
    def seconds(self) -> float:
        return (time.monotonic() if self.end is None else self.end.at) - self.started

    def last(self, max_lines: int, max_bytes: int) -> str:
        return self.output.last(max_lines, max_bytes) if self.output is not None else ""


class TaskRegistry:
    """The tasks of a session that run or ended lately. An id is never used twice in a session."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._count = 0
        self._started: Callable[[Task], None] = lambda task: None
        self._ended: Callable[[Task, TaskEnd], None] = lambda task, end: None
        self.closing = False
        """The worker ends: from now on, the end of a task starts no turn."""
        self._stopping: set[asyncio.Future[None]] = set()

    def watched_by(self, started: Callable[[Task], None], ended: Callable[[Task, TaskEnd], None], count: int) -> None:
        """Report to the session from now on. `count` tasks were started by earlier workers of the session."""
        self._started, self._ended = started, ended
        self._count = max(self._count, count)

    def new_id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._count}"

    def start(self, task: Task) -> None:
        """Add a task, which runs already."""
        self._tasks[task.id] = task
        over = [each for each in self._tasks.values() if each.end is not None]
        for each in over[: max(0, len(over) - _MAX_KEPT)]:
            del self._tasks[each.id]
        self._started(task)

    def finished(self, task: Task, end: TaskEnd) -> None:
        """Note that a task has ended. Only the first end counts."""
        if task.end is not None:
            return
        task.end = replace(end, told=end.told or task.told, at=time.monotonic())
        task.over.set()
        self._ended(task, task.end)

    def get(self, task_id: str) -> Task | None:
        return self._tasks.get(task_id)

    @property
    def running(self) -> list[Task]:
        return [task for task in self._tasks.values() if task.end is None]

    @property
    def awaited(self) -> bool:
        """Whether a task runs whose end is to be expected."""
        return any(not task.lasts for task in self.running)

    @property
    def known(self) -> list[str]:
        """The ids of the tasks that run or ended lately, oldest first."""
        return list(self._tasks)

    def stop_soon(self, task: Task) -> None:
        stopping = asyncio.ensure_future(task.stop())
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    async def stop_all(self, agent_id: str | None = None) -> None:
        stops = [task.stop() for task in self.running if agent_id in (None, task.agent_id)]
        await asyncio.gather(*stops, *self._stopping, return_exceptions=True)
