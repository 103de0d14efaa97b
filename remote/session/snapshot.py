"""The snapshot: what a client must know about the events that it is not sent. It is updated with every record."""

from __future__ import annotations

from collections import deque
from typing import Any

from ccb.tunnel.wire.content.attached import is_attached_file
from ccb.tunnel.wire.kinds.queue import LATER, PRIORITY, MovedRecord, TakenRecord, UnqueuedRecord
from ccb.tunnel.wire.kinds.rewind import RewindRecord
from ccb.tunnel.wire.kinds.workers import ForkedRecord
from ccb.tunnel.wire.messages import (
    AssistantLine,
    ResultLine,
    TaskLine,
    UserLine,
)
from ccb.tunnel.wire.projection import Projection, on
from ccb.tunnel.wire.records import InputRecord, PromptRecord, Record, TurnEndRecord
from ccb.tunnel.wire.tool_traits import View, traits_of

Json = dict[str, Any]

_MAX_PROMPTS = 64
_MAX_LISTS = 50  # of todos, to which a person may go back
_MAX_TEXT = 2_000  # characters of a prompt
_NEVER = 1 << 62


class _TrackedPrompt:
    """A prompt and the numbers of the events that brought it (`seq`), with which a turn took it and that turn ended."""

    def __init__(self, seq: int, input_id: str, line: UserLine) -> None:
        self.seq = seq
        self.taken = self.ended = _NEVER
        self.input_id = input_id
        self.uuid = line.uuid
        self.text = _shortened(line.text("\n"))
        self.files = sum(each.get("type") != "text" or is_attached_file(each) for each in line.blocks)
        self.steers = line.body.get(PRIORITY) != LATER


class SnapshotProjection(Projection):
    """The last result and todo list of the main agent, and the newest prompts."""

    def __init__(self) -> None:
        self._prompts: deque[_TrackedPrompt] = deque(maxlen=_MAX_PROMPTS)
        self._live: list[_TrackedPrompt] = []  # those of them that may not have ended
        self._result: Json | None = None
        self._todos: deque[tuple[int, list[Any]]] = deque(maxlen=_MAX_LISTS)  # with the numbers of their events
        self._tasks: dict[str, tuple[int, Json]] = {}  # those that run, each with the number of its event

    @property
    def todos(self) -> list[Any] | None:
        """The last todo list of the main agent, as its call gave it."""
        return self._todos[-1][1] if self._todos else None

    def body(self, seq: int, *, model: str, mode: str, asks: list[Json]) -> Json:
        """The body of a `snapshot` frame for everything up to event `seq`. `asks` are the public requests that are
        open."""
        prompts = [
            {
                "input": prompt.input_id,
                "uuid": prompt.uuid,
                "text": prompt.text,
                "taken": prompt.taken <= seq,
                "files": prompt.files,
                "steers": prompt.steers,
            }
            for prompt in self._prompts
            if prompt.seq <= seq < prompt.ended
        ]
        tasks = [body for started, body in self._tasks.values() if started <= seq]
        known = {"result": self._result, "todos": self.todos, "asks": asks, "prompts": prompts, "tasks": tasks}
        return {"model": model, "permission_mode": mode, **known}

    @on(InputRecord)
    def _input(self, content: InputRecord, record: Record) -> None:
        line = content.public
        if isinstance(line, UserLine) and not (line.uuid and line.uuid in [each.uuid for each in self._prompts]):
            prompt = _TrackedPrompt(record.seq, content.id, line)
            self._prompts.append(prompt)
            live = [each for each in self._live if each.ended == _NEVER]
            self._live = [*live[1 - _MAX_PROMPTS :], prompt]

    @on(PromptRecord)
    def _prompt(self, content: PromptRecord, record: Record) -> None:
        self._take(content.input_ids, record.seq)

    @on(TakenRecord)
    def _taken(self, content: TakenRecord, record: Record) -> None:
        self._take([content.input_id], record.seq)

    def _take(self, taken: list[str], seq: int) -> None:
        for prompt in self._live:
            if prompt.input_id in taken:
                prompt.taken = min(prompt.taken, seq)

    @on(TaskLine, main_only=True)
    def _task(self, line: TaskLine, record: Record) -> None:
        if line.subtype == "task_notification":
            self._tasks.pop(line.task_id, None)
        elif line.in_background:
            body = {"task_id": line.task_id, "description": line.description}
            self._tasks[line.task_id] = record.seq, body

    @on(UnqueuedRecord)
    def _unqueued(self, content: UnqueuedRecord, record: Record) -> None:
        for prompt in self._prompts:
            if prompt.input_id == content.id:
                prompt.ended = min(prompt.ended, record.seq)

    @on(MovedRecord)
    def _moved(self, content: MovedRecord, _: Record) -> None:
        moved = next((each for each in self._prompts if each.input_id == content.id), None)
        if moved is not None:
            self._prompts.remove(moved)
            moved.steers = moved.steers or content.steers
            before = (at for at, each in enumerate(self._prompts) if each.input_id == content.before)
            self._prompts.insert(next(before, len(self._prompts)), moved)

    @on(TurnEndRecord)
    def _turn_end(self, _: TurnEndRecord, record: Record) -> None:
        for prompt in self._live:
            if prompt.taken < record.seq < prompt.ended:
                prompt.ended = record.seq

    @on(ForkedRecord)
    def _forked(self, _: ForkedRecord, record: Record) -> None:
        """Drop the waiting and running prompts of the original: they neither wait nor run in the copy."""
        for prompt in self._prompts:
            prompt.ended = min(prompt.ended, record.seq)

    @on(RewindRecord)
    def _rewind(self, content: RewindRecord, _: Record) -> None:
        """The list that the agent had at that place counts again."""
        while content.to and self._todos and self._todos[-1][0] >= content.to:
            self._todos.pop()

    @on(ResultLine, main_only=True)
    def _last_result(self, line: ResultLine, _: Record) -> None:
        self._result = line.body

    @on(AssistantLine, main_only=True)
    def _assistant(self, line: AssistantLine, record: Record) -> None:
        for block in line.blocks:
            tool_input = block.get("input")
            if traits_of(str(block.get("name"))).view is View.CHECKLIST and isinstance(tool_input, dict):
                todos = tool_input.get("todos")
                if isinstance(todos, list):
                    self._todos.append((record.seq, todos))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " …"
