"""The turns of a session, one after the other: each prompt gets its turn, and each turn exactly one result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Callable

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import (
    LATER,
    MAIN_AGENT,
    PRIORITY,
    TASK_PREFIX,
    Projection,
    QueuedRecord,
    Record,
    on,
)
from ccb.tunnel.wire.messages import PublicMessage, ResultMessage, TaskMessage, UserMessage, parse_message
from ccb.tunnel.wire.outside_messages import ORIGIN

from ..agent.agent import Agent
from ..agent.agent_histories import zero_usage
from ..agent.agent_messages import task_message
from ..agent.turn_state import EndReason, Prompt, failed_result
from ..session_store.journal import NotKept
from ..session_store.session_log import SessionLog
from ..system.deadline import within
from ..tools.tasks import Task, TaskEnd, TaskKind, TaskRegistry, TaskStatus

_log = logging.getLogger(__name__)


class TurnState(Enum):
    NONE = "none"  # no turn runs
    RUNNING = "running"  # it has no result yet
    ANSWERED = "answered"  # its result is in the journal


class Turns(Projection):
    """Runs the main agent on waiting prompts and notices. Notices start no turn while `holds_notices`: a question is
    open, or nobody is there."""

    def __init__(
        self,
        session_log: SessionLog,
        inputs: InputQueue,
        agent: Agent,
        ready: Callable[[], Awaitable[None]],
        tasks: TaskRegistry,
        notices: TaskNotices,
        holds_notices: Callable[[], bool],
    ) -> None:
        self.state = TurnState.NONE
        self._log = session_log
        self._inputs, self._agent, self._ready = inputs, agent, ready
        self._alone = asyncio.Lock()  # held by a turn, and by what must not run beside one
        self._tasks, self._notices, self._holds_notices = tasks, notices, holds_notices
        self._finish_by: float | None = None  # end when idle; wait for tasks until this monotonic time
        session_log.follow(self)

    @contextlib.asynccontextmanager
    async def idle(self) -> AsyncIterator[bool]:
        """Let no turn begin in this context. Its value is False if a turn runs or waits."""
        if self._alone.locked() or self._inputs:
            yield False
            return
        async with self._alone:
            yield True

    async def run(self) -> None:
        while True:
            await self._ready()
            self._notices.flush()
            async with self._alone:
                prompts = self._inputs.next_turn(notices=not self._holds_notices())
                if prompts:
                    await self._turn(prompts)
            if prompts:
                continue
            if self._finish_by is None:
                await self._inputs.wait()
            elif not (self._tasks.awaited or self._inputs) or self._finish_by <= time.monotonic():
                return
            else:
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(self._finish_by - time.monotonic(), self._inputs.wait())

    @property
    def due(self) -> bool:
        return self._inputs.any_waiting or (bool(self._inputs) and not self._holds_notices())

    def finish(self, wait_s: float = 600.0) -> None:
        """Let `run` return once no prompt waits and no task runs, or after `wait_s`."""
        self._finish_by = time.monotonic() + wait_s
        self._inputs.wake()

    def go_on(self) -> None:
        self._finish_by = None

    def fail(self, reasons: Sequence[str], *, full: bool = False, unkept: Json | None = None) -> None:
        """Write a result for a turn that could not write its own (`unkept`). It is shown even if not journalled."""
        counts: Json = {"duration_ms": 0, "duration_api_ms": 0, "num_turns": 0, "stop_reason": None}
        spent = {**self._log.usage.spent, "usage": zero_usage()}
        terminal = EndReason.STORAGE_FULL if full else EndReason.MODEL_ERROR
        failed = failed_result(terminal, reasons)
        result: Json = {**failed, **counts, **spent, "permission_denials": [], **(unkept or {})}
        try:
            self._log.say(result)
        except NotKept:
            self._log.progress("", result)

    async def _turn(self, prompts: Sequence[Prompt]) -> None:
        self.state = TurnState.RUNNING
        try:
            self._log.emit(records.TurnStartRecord())
            await self._agent.run_turn(prompts)
        except NotKept as error:
            _log.error("the turn ended: %s", error)
            if self.state is TurnState.RUNNING:
                self.fail([str(error)], full=error.full, unkept=error.result)
        except Exception as error:  # noqa: BLE001 - one turn must not end the session
            _log.exception("the turn ended in a bug")
            if self.state is TurnState.RUNNING:
                self.fail([f"internal error in the worker: {type(error).__name__}: {error}"])
        finally:
            self.state = TurnState.NONE
            self._log.changed()
        with contextlib.suppress(NotKept):
            self._log.emit(records.TurnEndRecord())
            self._log.journal.flush_soon()

    @on(ResultMessage, main_only=True)
    def _result(self, _: ResultMessage, __: Record) -> None:
        if self.state is TurnState.RUNNING:
            self.state = TurnState.ANSWERED


_WORKER_GONE = "was stopped with the worker that ran it"
_IN_ORIGINAL = "stays with the session that this one was copied from"
_MAX_RESULT = 100_000  # characters
_MAX_DESCRIPTION = 200  # characters in a summary
_MAX_DIGITS = 10
_CLOSING, _HARMLESS = "</task-notification", "<\\/task-notification"


class JournalledTasks(Projection):
    """`open` for the clients; `told`: their end is queued; `copied` from a fork's original."""

    def __init__(self) -> None:
        self.count = 0
        self.open: OrderedDict[str, tuple[TaskMessage, str]] = OrderedDict()
        self.told: set[str] = set()
        self.copied: set[str] = set()

    @on(TaskMessage)
    def _news(self, line: TaskMessage, record: Record) -> None:
        if line.subtype == "task_notification":
            self.open.pop(line.task_id, None)
            self.told.discard(line.task_id)
        elif line.in_background and line.task_id not in self.open:
            number = line.task_id.rpartition("_")[2]
            if number.isdecimal() and len(number) < _MAX_DIGITS:
                self.count = max(self.count, int(number))
            self.open[line.task_id] = line, record.agent_id

    @on(records.QueuedRecord)
    def _queued(self, content: records.QueuedRecord, _: Record) -> None:
        task_id = content.id[len(TASK_PREFIX) :]
        if content.id.startswith(TASK_PREFIX) and task_id in self.open:
            self.told.add(task_id)

    @on(records.ForkedRecord)
    def _forked(self, _: records.ForkedRecord, __: Record) -> None:
        self.copied = set(self.open)


class TaskNotices:
    """Watches the registry of tasks. What the journal cannot take is tried again."""

    def __init__(self, log: SessionLog, inputs: InputQueue, tasks: TaskRegistry) -> None:
        self._tasks = tasks
        self._session = log
        self._inputs = inputs
        self._due: deque[tuple[records.Content, str]] = deque()  # records, each with its agent

    def begin(self, journalled: JournalledTasks | None = None) -> None:
        """Watch from now on. Tell of the tasks that ended with an earlier worker."""
        known = journalled or JournalledTasks()
        self._tasks.watched_by(self.started, self.ended, known.count)
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
        self._due.append((records.MessageRecord(_started(task)), task.agent_id))
        self.flush()

    def ended(self, task: Task, end: TaskEnd) -> None:
        line = parse_message(_started(task))
        assert isinstance(line, TaskMessage)
        self._end(line, end, task.agent_id, wakes=not self._tasks.closing)
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
        self._session.journal.flush_soon()

    def _end(self, line: TaskMessage, end: TaskEnd, agent_id: str, *, wakes: bool) -> None:
        """Queue first: a worker that is killed in between then owes only the clients their message."""
        if not end.told:
            content = [{"type": "text", "text": notification_text(line, end)}]
            origin = {"kind": "task-notification", "task_id": line.task_id}
            self._due.append((records.QueuedRecord(TASK_PREFIX + line.task_id, content, origin, wakes), agent_id))
        body = task_message(
            "task_notification",
            line.task_id,
            status=end.status.public,
            output_file=line.output_file,
            summary=end.summary,
            tool_use_id=line.tool_use_id or None,
            usage=end.usage,
        )
        self._due.append((records.MessageRecord(body), agent_id))


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
    return task_message(
        "task_started",
        task.id,
        task_type=task.kind.value,
        description=task.description,
        is_backgrounded=True,
        **task.public,
        tool_use_id=task.tool_use_id or None,
        output_file=task.output_file or None,
    )


MAX_WAITING = 1000
_MAX_SEEN = 20_000  # number of remembered ids; the clients of older inputs have received their `applied` long ago
_NOW, _NEXT, _LATER = range(3)
_PRIORITIES = {"now": _NOW, "next": _NEXT, LATER: _LATER}


@dataclass(frozen=True)
class Waiting:
    """An item of the queue. `wakes`: it starts a turn."""

    prompt: Prompt
    uuid: str
    priority: int
    wakes: bool = True
    agent_id: str = MAIN_AGENT

    @property
    def is_notice(self) -> bool:
        return self.prompt.origin is not None

    @property
    def stands_alone(self) -> bool:
        """Whether it needs a turn of its own: it may be a command, or the model is not called for it."""
        prompt = self.prompt
        text = str(prompt.blocks[0].get("text")) if prompt.blocks else ""
        return prompt.silent or (not (self.is_notice or prompt.verbatim) and text.startswith("/"))


class InputQueue(Projection):
    """The ids of applied inputs, and the queue of prompts and notices. Notices come after prompts. `waiting` are the
    prompts that no turn is known to have taken, by input id; `on_taken` gets each one that is."""

    def __init__(self) -> None:
        self.any_prompt = False
        self.waiting: OrderedDict[str, UserMessage] = OrderedDict()
        self.on_taken: Callable[[str, UserMessage], None] = lambda input_id, line: None
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._queue: list[Waiting] = []  # by priority
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return sum(1 for each in self._queue if each.wakes and each.agent_id == MAIN_AGENT)

    @property
    def any_waiting(self) -> bool:
        return any(not each.is_notice for each in self._queue)

    @property
    def outside_waiting(self) -> int:
        return sum(1 for each in self._queue if (each.prompt.origin or {}).get("kind") == ORIGIN)

    def knows(self, input_id: str) -> bool:
        return input_id in self._seen

    def knows_message(self, line: PublicMessage) -> bool:
        return isinstance(line, UserMessage) and f"uuid:{line.uuid}" in self._seen

    @on(records.InputRecord)
    def _input(self, content: records.InputRecord, _: Record) -> None:
        line, repeated = content.public, self.knows_message(content.public)
        self._seen[content.id] = None
        if isinstance(line, UserMessage):
            self.any_prompt = True
            if line.uuid:
                self._seen[f"uuid:{line.uuid}"] = None
            if not repeated:
                self.waiting[content.id] = line
                priority = _PRIORITIES.get(str(line.body.get(PRIORITY)), _NEXT)
                self._add(Waiting(Prompt.from_input(content.id, line), line.uuid, priority))
        while len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)

    @on(QueuedRecord)
    def _queued(self, notice: QueuedRecord, record: Record) -> None:
        prompt = Prompt(notice.content, notice.id, notice.origin)
        self._add(Waiting(prompt, "", _LATER, notice.wakes, record.agent_id))

    @on(records.UnqueuedRecord)
    def _unqueued(self, content: records.UnqueuedRecord, _: Record) -> None:
        self.waiting.pop(content.id, None)
        self._queue = [each for each in self._queue if each.prompt.input_id != content.id]

    @on(records.MovedRecord)
    def _moved(self, content: records.MovedRecord, _: Record) -> None:
        """Put a waiting prompt in front of another one, or last. `steers`: it joins the running turn."""
        for item in [each for each in self._queue if each.prompt.input_id == content.id]:
            self._queue.remove(item)
            if content.steers and item.priority == _LATER:
                item = replace(item, priority=_NEXT)
            places = [at for at, each in enumerate(self._queue) if each.prompt.input_id == content.before]
            if content.before and places and self._queue[places[0]].priority == item.priority:
                self._queue.insert(places[0], item)
            else:
                self._add(item)

    @on(records.PromptRecord, records.TakenRecord)
    def _take(self, content: records.PromptRecord | records.TakenRecord, _: Record) -> None:
        unread = isinstance(content, records.TakenRecord)  # a notice that the model has not read still waits for it
        taken = [content.input_id] if isinstance(content, records.TakenRecord) else content.input_ids
        self._queue = [each for each in self._queue if each.prompt.input_id not in taken or (unread and each.is_notice)]
        for input_id in taken:
            line = self.waiting.pop(input_id, None)
            if line is not None:
                self.on_taken(input_id, line)

    @on(records.AgentResultRecord)
    def _agent_result(self, _: records.AgentResultRecord, record: Record) -> None:
        self._queue = [each for each in self._queue if not each.is_notice or each.agent_id != record.agent_id]

    @on(records.ForkedRecord)
    def _forked(self, _: records.ForkedRecord, __: Record) -> None:
        """The copy does not answer the prompts of the original. Notices wait for the copy's next turn."""
        self.drop_prompts()
        self._queue = [replace(each, wakes=False) for each in self._queue]

    def drop_prompts(self) -> None:
        self.waiting.clear()
        self._queue = [each for each in self._queue if each.is_notice]

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= MAX_WAITING

    def _add(self, item: Waiting) -> None:
        place = next((at for at, each in enumerate(self._queue) if each.priority > item.priority), len(self._queue))
        self._queue.insert(place, item)
        self._arrived.set()

    def wake(self) -> None:
        self._arrived.set()

    async def wait(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()

    def next_turn(self, *, notices: bool) -> list[Prompt]:
        """Take what the next turn begins with: the first prompt after the notices before it (none go with a command),
        or notices alone if one wakes and `notices` allows it."""
        ours = [each for each in self._queue if each.agent_id == MAIN_AGENT]
        told = [each for each in ours if each.is_notice]
        prompt = next((each for each in ours if not each.is_notice), None)
        if prompt is not None:
            return self._taken([prompt] if prompt.stands_alone else [*told, prompt])
        return self._taken(told if notices and any(each.wakes for each in told) else [])

    def take_all(self, agent_id: str, alone: Callable[[Sequence[Json]], bool]) -> list[Prompt]:
        """Take what joins an agent's running turn: neither prompts for later, nor a command and what comes after it."""
        taken: list[Waiting] = []
        stops = False
        for each in self._queue:
            if each.agent_id != agent_id or not (each.is_notice or each.priority < _LATER):
                continue
            stops = stops or (each.stands_alone and (each.prompt.shell or alone(each.prompt.blocks)))
            if each.is_notice or not stops:
                taken.append(each)
        return self._taken(taken)

    def waiting_id(self, uuid: str) -> str:
        found = (each.prompt.input_id for each in self._queue if uuid and uuid in (each.uuid, each.prompt.input_id))
        return next(found, "")

    def _taken(self, items: list[Waiting]) -> list[Prompt]:
        taken = {id(each) for each in items}
        self._queue = [each for each in self._queue if id(each) not in taken]
        return [each.prompt for each in items]

    @property
    def waiting_uuids(self) -> list[str]:
        return [each.uuid for each in self._queue if each.uuid]
