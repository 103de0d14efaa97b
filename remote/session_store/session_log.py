"""The only writer to a session's journal, and what it derives for clients: snapshot, unfinished work, usage."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Callable

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT, Projection, Record, on, replay
from ccb.tunnel.wire.messages import as_dict
from ccb.tunnel.wire.model_facts import context_tokens
from ccb.tunnel.wire.prompt_content import is_attached_file
from ccb.tunnel.wire.todo_list import TodoList, public_todo
from ccb.tunnel.wire.tool_traits import traits_of

from .client_outbox import ClientOutbox, joined_delta
from .file_history import RewindPoints
from .journal import Journal
from .journal_summary import JournalSummary


class SessionLog:
    """The only writer to the journal of a session, which passes every record on to projections. What is shown but not
    journalled goes to `outboxes`. Call `changed` when the state of the session or its last prompt has changed."""

    def __init__(
        self, session_id: str, journal: Journal, outboxes: Collection[ClientOutbox], changed: Callable[[], None]
    ) -> None:
        self.session_id = session_id
        self.journal = journal
        self.summary = JournalSummary()
        self.usage = SessionUsage()
        self.partial = UnfinishedWork()
        self.snapshot = SnapshotProjection()
        self.points = RewindPoints()
        self._projections: list[Projection] = [self.summary, self.usage, self.partial, self.snapshot, self.points]
        self.changed = changed
        self._outboxes = outboxes

    def read(self, *more: Projection) -> None:
        """Feed the existing journal to the projections and to `more`, in one pass."""
        replay(self.journal.all(), *self._projections, *more)

    def follow(self, projection: Projection) -> None:
        """Pass every future record to another projection. It comes after the others, so it may emit records itself."""
        self._projections.append(projection)

    def emit(self, content: records.Content, agent_id: str = MAIN_AGENT) -> Record:
        """Append a record of an agent. A public message gets the ids it lacks. Raises NotKept."""
        if isinstance(content, records.MessageRecord):
            content = records.MessageRecord(self._whole(content.body))
        record = self.journal.append(content, agent_id)
        for projection in self._projections:
            projection.apply(record)
        if isinstance(content, records.MessageRecord):
            self.journal.flush_soon()
        return record

    def say(self, body: Json) -> None:
        self.emit(records.MessageRecord(body))

    def progress(self, key: str, body: Json) -> None:
        """Show an object that may be lost. It replaces an unsent one with the same non-empty `key`."""
        whole = self._whole(body)
        self.partial.take(key, whole)
        for outbox in self._outboxes:
            outbox.progress(self.journal.seq, key, whole)

    def tell_driver(self, key: str, body: Json) -> None:
        """Send the driver a public object that is not journalled. It replaces an unsent one with the same key."""
        for outbox in self._outboxes:
            if outbox.role == "driver":
                outbox.progress(self.journal.seq, key, body)

    async def commit(self) -> None:
        await self.journal.commit()

    def _whole(self, body: Json) -> Json:
        return {**body, "session_id": self.session_id, "uuid": body.get("uuid") or new_uuid()}


_MAX_COUNTED = 1_000


class SessionUsage(Projection):
    """`context_tokens` is the size of the main conversation as last counted, `spent` what the last result tells."""

    def __init__(self) -> None:
        self.context_tokens = 0
        self._counted: deque[tuple[int, int]] = deque(maxlen=_MAX_COUNTED)
        self.spent: Json = {"total_cost_usd": 0, "modelUsage": {}}

    @on(records.ModelEndRecord, main_only=True)
    def _model_end(self, content: records.ModelEndRecord, record: Record) -> None:
        self.context_tokens = context_tokens(content.usage)
        self._counted.append((record.seq, self.context_tokens))

    @on(records.RewindRecord)
    def _rewind(self, content: records.RewindRecord, _: Record) -> None:
        if content.to:
            before = [each for each in self._counted if each[0] < content.to]
            self._counted = deque(before, _MAX_COUNTED)
            self.context_tokens = before[-1][1] if before else 0

    @on(messages.ResultMessage, main_only=True)
    def _result(self, line: messages.ResultMessage, _: Record) -> None:
        self.spent = {"total_cost_usd": line.total_cost_usd, "modelUsage": line.model_usage}


_MAX_TOOLS = 64


class UnfinishedWork(Projection):
    """Holds what was shown as progress and has not reached the journal, for a client that attaches meanwhile."""

    def __init__(self) -> None:
        self._answers: dict[str, list[Json]] = {}  # by agent id: the objects of the answer so far
        self._tools: dict[str, tuple[messages.ToolProgressMessage, str]] = {}  # by slot: output, agent id

    def take(self, key: str, body: Json) -> None:
        """Take the next public object that is not journalled; `key` is its slot, see `SessionLog.progress`."""
        line = messages.parse_message(body)
        agent_id = records.agent_of_message(body)
        if isinstance(line, messages.StreamEventMessage):
            self._stream(agent_id, line)
        elif isinstance(line, messages.ToolProgressMessage) and key:
            self._tools.pop(key, None)
            self._tools[key] = line, agent_id
            while len(self._tools) > _MAX_TOOLS:
                del self._tools[next(iter(self._tools))]

    def bodies(self) -> list[tuple[str, Json]]:
        streamed = [("", body) for answer in self._answers.values() for body in answer]
        return streamed + [(key, line.body) for key, (line, _) in self._tools.items()]

    @on(messages.ResultMessage, records.AgentResultRecord)
    def _result(self, _: messages.ResultMessage | records.AgentResultRecord, record: Record) -> None:
        self._answers.pop(record.agent_id, None)
        self._drop_tools(lambda line, agent_id: agent_id == record.agent_id)

    @on(messages.UserMessage)
    def _user(self, line: messages.UserMessage, _: Record) -> None:
        done = line.done_tool_uses()
        if done:
            self._drop_tools(lambda shown, _: shown.tool_use_id in done)

    @on(records.WithdrawnRecord)
    def _withdrawn(self, withdrawn: records.WithdrawnRecord, record: Record) -> None:
        answer = self._answers.get(record.agent_id)
        if answer and as_dict(answer[0]["event"].get("message")).get("id") == withdrawn.message_id:
            del self._answers[record.agent_id]

    def _drop_tools(self, done: Callable[[messages.ToolProgressMessage, str], bool]) -> None:
        for key in [key for key, (line, agent_id) in self._tools.items() if done(line, agent_id)]:
            del self._tools[key]

    def _stream(self, agent_id: str, line: messages.StreamEventMessage) -> None:
        kind = line.event.get("type")
        if kind == "message_start":
            self._answers[agent_id] = [line.body]
        elif kind == "message_stop":
            self._answers.pop(agent_id, None)
        elif agent_id in self._answers and "index" in line.event:
            answer = self._answers[agent_id]
            joined = joined_delta(answer[-1], line.body)
            answer[-1:] = [answer[-1], line.body] if joined is None else [joined]


_MAX_PROMPTS = 64
_MAX_LISTS = 200  # of todos, to which a person may go back
_MAX_TEXT = 2_000  # characters of a prompt
_NEVER = 1 << 62


class _TrackedPrompt:
    """A prompt as it is shown, and the numbers of the events that brought it (`seq`), with which a turn took it and
    that turn ended."""

    def __init__(self, seq: int, input_id: str, line: messages.UserMessage) -> None:
        self.seq = seq
        self.taken = self.ended = _NEVER
        text = line.text("\n")
        self.shown: Json = {
            "input": input_id,
            "uuid": line.uuid,
            "text": text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " …",
            "files": sum(each.get("type") != "text" or is_attached_file(each) for each in line.blocks),
            "steers": line.body.get(records.PRIORITY) != records.LATER,
        }


class SnapshotProjection(Projection):
    """The last result and todo list of the main agent, and the newest prompts."""

    def __init__(self) -> None:
        self._prompts: deque[_TrackedPrompt] = deque(maxlen=_MAX_PROMPTS)
        self._result: Json | None = None
        self._todos: deque[tuple[int, TodoList]] = deque(maxlen=_MAX_LISTS)  # with the numbers of their events
        self._tasks: dict[str, tuple[int, Json]] = {}  # those that run, each with the number of its event

    @property
    def todos(self) -> TodoList:
        return self._todos[-1][1] if self._todos else TodoList()

    def body(self, seq: int, *, model: str, mode: str, asks: list[Json]) -> Json:
        """The body of a `snapshot` frame for everything up to event `seq`. `asks` are the open public requests."""
        prompts = [{**each.shown, "taken": each.taken <= seq} for each in self._prompts if each.seq <= seq < each.ended]
        tasks = [body for started, body in self._tasks.values() if started <= seq]
        todos = next((each for at, each in reversed(self._todos) if at <= seq), TodoList())
        listed = [{"id": each.id, **public_todo(each)} for each in todos.items] or None
        known = {"result": self._result, "todos": listed, "asks": asks, "prompts": prompts, "tasks": tasks}
        return {"model": model, "permission_mode": mode, **known}

    @on(records.InputRecord)
    def _input(self, content: records.InputRecord, record: Record) -> None:
        line = content.public
        if isinstance(line, messages.UserMessage) and not (
            line.uuid and line.uuid in [each.shown["uuid"] for each in self._prompts]
        ):
            self._prompts.append(_TrackedPrompt(record.seq, content.id, line))

    @on(records.PromptRecord, records.TakenRecord)
    def _taken(self, content: records.PromptRecord | records.TakenRecord, record: Record) -> None:
        taken = [content.input_id] if isinstance(content, records.TakenRecord) else content.input_ids
        for prompt in self._prompts:
            if prompt.shown["input"] in taken:
                prompt.taken = min(prompt.taken, record.seq)

    @on(messages.TaskMessage)
    def _task(self, line: messages.TaskMessage, record: Record) -> None:
        if line.subtype == "task_notification":
            self._tasks.pop(line.task_id, None)
        elif line.in_background:
            body = {"task_id": line.task_id, "description": line.description, "task_type": line.task_type}
            agent_id = line.body.get("agent_id")  # of an agent that goes on, the call before
            self._tasks[line.task_id] = record.seq, {**body, "agent_id": agent_id} if agent_id else body

    @on(records.UnqueuedRecord, records.ForkedRecord)
    def _unqueued(self, content: records.UnqueuedRecord | records.ForkedRecord, record: Record) -> None:
        for prompt in self._prompts:
            if isinstance(content, records.ForkedRecord) or prompt.shown["input"] == content.id:
                prompt.ended = min(prompt.ended, record.seq)

    @on(records.MovedRecord)
    def _moved(self, content: records.MovedRecord, _: Record) -> None:
        for moved in [each for each in self._prompts if each.shown["input"] == content.id]:
            self._prompts.remove(moved)
            moved.shown["steers"] |= content.steers
            before = (at for at, each in enumerate(self._prompts) if each.shown["input"] == content.before)
            self._prompts.insert(next(before, len(self._prompts)), moved)

    @on(records.TurnEndRecord)
    def _turn_end(self, _: records.TurnEndRecord, record: Record) -> None:
        for prompt in self._prompts:
            if prompt.taken < record.seq < prompt.ended:
                prompt.ended = record.seq

    @on(records.RewindRecord)
    def _rewind(self, content: records.RewindRecord, _: Record) -> None:
        while content.to and self._todos and self._todos[-1][0] >= content.to:
            self._todos.pop()

    @on(messages.ResultMessage, main_only=True)
    def _last_result(self, line: messages.ResultMessage, _: Record) -> None:
        self._result = line.body

    @on(messages.AssistantMessage, main_only=True)
    def _assistant(self, line: messages.AssistantMessage, record: Record) -> None:
        for block in line.blocks:
            todos, traits = as_dict(block.get("input")).get("todos"), traits_of(str(block.get("name")))
            if traits.view.shows_todos and not traits.todo_items and isinstance(todos, list):
                self._todos.append((record.seq, TodoList.written(todos)))

    @on(records.TodoRecord)
    def _todo(self, content: records.TodoRecord, record: Record) -> None:
        self._todos.append((record.seq, self.todos.changed(content)))
