"""The tasks of a session in its journal: clients see their start and end, and an agent gets each end once."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from typing import Any

from ccb.tunnel.wire.journal_records import (
    MAIN_AGENT,
    TASK_PREFIX,
    Content,
    ForkedRecord,
    MessageRecord,
    QueuedRecord,
    Record,
)
from ccb.tunnel.wire.messages import TaskMessage, parse_message
from ccb.tunnel.wire.projection import Projection, on

from ..session_store.journal import NotKept
from ..session_store.session_log import SessionLog
from ..tools.tasks import Task, TaskEnd, TaskKind, TaskRegistry, TaskStatus
from .input_queue import InputQueue

Json = dict[str, Any]

_log = logging.getLogger(__name__)

_WORKER_GONE = "was stopped with the worker that ran it"
_IN_ORIGINAL = "stays with the session that this one was copied from"
_MAX_RESULT = 100_000  # characters
_MAX_DESCRIPTION = 200  # characters in a summary
_MAX_DIGITS = 10
_CLOSING, _HARMLESS = "</task-notification", "<\\/task-notification"


class JournalledTasks(Projection):
    """The tasks in the journal: `open` for the clients, `told` those whose end is queued, `copied` those of a fork's
    original."""

    def __init__(self) -> None:
        self.count = 0
        self.open: OrderedDict[str, tuple[TaskMessage, str]] = OrderedDict()
        self.told: dict[str, QueuedRecord] = {}
        self.copied: set[str] = set()

    @on(TaskMessage)
    def _news(self, line: TaskMessage, record: Record) -> None:
        if line.subtype == "task_notification":
            self.open.pop(line.task_id, None)
            self.told.pop(line.task_id, None)
        elif line.in_background and line.task_id not in self.open:
            number = line.task_id.rpartition("_")[2]
            if number.isdecimal() and len(number) < _MAX_DIGITS:
                self.count = max(self.count, int(number))
            self.open[line.task_id] = line, record.agent_id

    @on(QueuedRecord)
    def _queued(self, content: QueuedRecord, _: Record) -> None:
        task_id = content.id[len(TASK_PREFIX) :]
        if content.id.startswith(TASK_PREFIX) and task_id in self.open:
            self.told[task_id] = content

    @on(ForkedRecord)
    def _forked(self, _: ForkedRecord, __: Record) -> None:
        self.copied = set(self.open)


class TaskNotices:
    """Watches the registry of tasks. What the journal cannot take is tried again."""

    def __init__(self, log: SessionLog, inputs: InputQueue, tasks: TaskRegistry) -> None:
        self._tasks = tasks
        self._session = log
        self._inputs = inputs
        self._due: deque[tuple[Content, str]] = deque()  # records, each with its agent

    def begin(self, journalled: JournalledTasks | None = None) -> None:
        """Watch from now on. Tell of the tasks that ended with an earlier worker."""
        known = journalled or JournalledTasks()
        self._tasks.watched_by(self, known.count)
        for task_id, (line, agent_id) in list(known.open.items()):
            copied = task_id in known.copied
            kind = "command" if line.task_type == TaskKind.SHELL.value else "agent"
            does = " ".join(line.description.split())
            does = does if len(does) <= _MAX_DESCRIPTION else does[:_MAX_DESCRIPTION] + "…"
            summary = f'Background {kind} "{does}" {_IN_ORIGINAL if copied else _WORKER_GONE}'
            told = task_id in known.told or agent_id != MAIN_AGENT  # a sub-agent ended with its worker
            end = TaskEnd(TaskStatus.KILLED, summary, told=told)
            self._end(line, end, agent_id, wakes=not copied)
        self.flush()

    def started(self, task: Task) -> None:
        self._due.append((MessageRecord(_started(task)), task.agent_id))
        self.flush()

    def ended(self, task: Task, end: TaskEnd, *, closing: bool) -> None:
        line = parse_message(_started(task))
        assert isinstance(line, TaskMessage)
        self._end(line, end, task.agent_id, wakes=not closing)
        self.flush()
        self._inputs.wake()

    def flush(self) -> None:
        while self._due:
            content, agent_id = self._due[0]
            try:
                self._session.emit(content, agent_id)
            except NotKept as error:
                _log.error("news of a task is not in the journal yet: %s", error)
                return
            self._due.popleft()
            if isinstance(content, QueuedRecord):
                self._inputs.notify(content, agent_id)
        self._session.journal.flush_soon()

    def _end(self, line: TaskMessage, end: TaskEnd, agent_id: str, *, wakes: bool) -> None:
        """Queue first: a worker that is killed in between then owes only the clients their message."""
        if not end.told:
            content = [{"type": "text", "text": notification_text(line, end)}]
            origin = {"kind": "task-notification", "task_id": line.task_id}
            self._due.append((QueuedRecord(TASK_PREFIX + line.task_id, content, origin, wakes), agent_id))
        body: Json = {
            "type": "system",
            "subtype": "task_notification",
            "task_id": line.task_id,
            "status": end.status.public,
            "output_file": line.output_file,
            "summary": end.summary,
        }
        more = {"tool_use_id": line.tool_use_id or None, "usage": end.usage}
        body.update({name: value for name, value in more.items() if value is not None})
        self._due.append((MessageRecord(body), agent_id))


def notification_text(line: TaskMessage, end: TaskEnd) -> str:
    fields = [
        ("task-id", line.task_id),
        ("tool-use-id", line.tool_use_id),
        ("output-file", line.output_file),
        ("status", end.status.value),
        ("summary", end.summary),
        ("result", end.result[:_MAX_RESULT]),
        ("usage", "".join(f"<{name}>{value}</{name}>" for name, value in (end.usage or {}).items())),
    ]
    inner = "\n".join(f"<{name}>{value}</{name}>" for name, value in fields if value)
    return f"<task-notification>\n{inner.replace(_CLOSING, _HARMLESS)}\n</task-notification>"


def _started(task: Task) -> Json:
    body: Json = {
        "type": "system",
        "subtype": "task_started",
        "task_id": task.id,
        "task_type": task.kind.value,
        "description": task.description,
        "is_backgrounded": True,
        **task.public,
    }
    more = {"tool_use_id": task.tool_use_id, "output_file": task.output_file}
    return {**body, **{name: value for name, value in more.items() if value}}
