"""The tasks that run in the background of a session, as its messages tell."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.messages import TaskLine

from ....session.newest import Newest

_MAX_TASKS = 1_000
_MAX_TEXT = 1_000  # characters


@dataclass(frozen=True)
class RunningTask:
    """One task. `since` is the monotonic time at which this terminal heard of it."""

    id: str
    description: str
    since: float


class RunningTasks:
    """Keeps the tasks that run."""

    def __init__(self) -> None:
        self._by_id: Newest[str, RunningTask] = Newest(_MAX_TASKS)

    @property
    def running(self) -> list[RunningTask]:
        """The tasks that run, oldest first."""
        return list(self._by_id.values())

    def told(self, note: TaskLine) -> bool:
        """Take what the worker says about a task. Return whether a task in the background has ended."""
        if note.subtype == "task_notification":
            return self._by_id.pop(note.task_id, None) is not None
        if note.in_background:
            self._by_id[note.task_id] = RunningTask(note.task_id, note.description[:_MAX_TEXT], time.monotonic())
        return False

    def snapshot(self, tasks: Iterable[tuple[str, str]]) -> None:
        """Take over the id and the description of every task that runs."""
        known, now, self._by_id = self._by_id, time.monotonic(), Newest(_MAX_TASKS)
        for each, description in tasks:
            self._by_id[each] = known.get(each) or RunningTask(each, description[:_MAX_TEXT], now)
