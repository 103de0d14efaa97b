"""What clients may ask about tasks and about prompts that wait: move to the background, stop, read, take back and
reorder."""

from __future__ import annotations

from typing import Any

from ccb.tunnel.wire.kinds.tasks import BACKGROUND_TASKS, CANCEL_ASYNC_MESSAGE, MOVE_ASYNC_MESSAGE, READ_TASK, STOP_TASK
from ccb.tunnel.wire.requests import RequestRefused

from ...tasks.registry import Task
from ..broker import Handled
from ..session import Session

Json = dict[str, Any]

_MAX_LINES = 200
_MAX_BYTES = 32 * 1024


def register_task_requests(session: Session) -> None:
    """Register the handlers with the session's broker."""
    broker = session.broker
    broker.register(BACKGROUND_TASKS, lambda _: Handled({"moved": session.agent.config.context.shells.move_all()}))
    broker.register(STOP_TASK, lambda task_id: _stop(session, task_id))
    broker.register(READ_TASK, lambda task_id: Handled(_output(find_task(session, task_id))))
    broker.register(CANCEL_ASYNC_MESSAGE, lambda uuid: Handled({"cancelled": session.take_back(uuid)}))
    broker.register(MOVE_ASYNC_MESSAGE, lambda move: Handled({"moved": session.move(move)}))


def find_task(session: Session, task_id: str) -> Task:
    """Return a task. Raise RequestRefused."""
    task = session.tasks.get(task_id)
    if task is None:
        raise RequestRefused(f"No task found with ID: {task_id}")
    return task


def _stop(session: Session, task_id: str) -> Handled:
    task = find_task(session, task_id)
    if task.end is not None:
        raise RequestRefused(f"Task {task_id} is not running: its status is {task.status.value}")
    return Handled({}, lambda: session.tasks.stop_soon(task))


def _output(task: Task) -> Json:
    """Return the end of the output of a task."""
    return {"task_id": task.id, "status": task.status.public, "output": task.read(_MAX_LINES, _MAX_BYTES)}
