"""Match results with the prompts that wait for them, and print one result for each turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.messages import TaskMessage

from ..command_line.exit_codes import ExitCode
from ..session.newest import Newest
from .output_formats import HeadlessOutput, RetryReports, command_message, exit_code, local_result, usage_between

if TYPE_CHECKING:
    from ..session.session_client import Json

_MAX_INPUTS = 10_000
_MAX_TASKS = 1_000
_MAX_TEXT = 1_000  # characters of the description of a task
GOODBYE_S = 5.0  # seconds for the host to end the session after the last result, or to send a result after an interrupt


def state_flags(environ: Mapping[str, str]) -> Json | None:
    """Return what messages about the session's state have in addition, None if nobody asked for them."""
    if environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS") == "1":
        return {}
    return {"sdk_host_only": True} if environ.get("CLAUDE_CODE_SDK_READS_SESSION_STATE") == "1" else None


@dataclass(eq=False)
class TurnReports:
    """Around each turn. Every `running` is followed by an `idle`. `flags` are those of `state_flags`."""

    _output: HeadlessOutput
    _flags: Json | None
    _lifecycle: bool
    session_id: str = ""
    in_turn: bool = False
    _state: str = "idle"
    _prompts: dict[str, str] = field(default_factory=dict)  # uuids of the prompts that wait, by input id
    _started: list[str] = field(default_factory=list)  # uuids of the prompts of the running turn

    async def queued(self, input_id: str, identity: str) -> None:
        if identity and input_id not in self._prompts and self._lifecycle:
            self._prompts[input_id] = identity
            await self._command(identity, "queued")

    async def taken(self, input_ids: Iterable[str]) -> None:
        for input_id in input_ids:
            identity = self._prompts.pop(input_id, "")
            if identity:
                self._started.append(identity)
                await self._command(identity, "started")

    @property
    def prompts_of_turn(self) -> Json:
        """The fields of a result that name the prompts of its turn by their uuids."""
        return {"user_message_uuid": self._started[-1], "user_message_uuids": [*self._started]} if self._started else {}

    async def turn_began(self) -> None:
        self.in_turn = True
        await self._change("running")

    async def waits(self, *, waits: bool) -> None:
        if self._state != "idle":
            await self._change("requires_action" if waits else "running")

    async def background(self, tasks: Iterable[TaskMessage]) -> None:
        if self._lifecycle:
            fields = ("task_id", "task_type", "description", "tool_use_id")
            listed = [{name: getattr(each, name) for name in fields} for each in tasks]
            await self._print({"type": "system", "subtype": "background_tasks_changed", "tasks": listed})

    async def began_before(self, input_id: str) -> Json:
        """The result of a turn comes that was over before this run. Return the fields that name its prompt."""
        identity = self._prompts.pop(input_id, "")
        if not identity:
            return {}
        if not self.in_turn:
            await self._change("running")
        await self._command(identity, "started")
        return {"user_message_uuid": identity, "user_message_uuids": [identity]}

    async def ended_before(self, prompt: Json, *, more: bool) -> None:
        """That result was printed; `prompt` is what `began_before` has returned."""
        if prompt:
            await self._command(prompt["user_message_uuid"], "completed")
            if not (self.in_turn or more):
                await self._change("idle")

    async def turn_ended(self, *, more: bool = False) -> None:
        self.in_turn = False
        started, self._started = self._started, []
        for identity in started:
            await self._command(identity, "completed")
        if not more:
            await self._change("idle")

    async def _change(self, state: str) -> None:
        if state != self._state:
            self._state = state
            if self._flags is not None:
                body = {"type": "system", "subtype": "session_state_changed", "state": state, **self._flags}
                await self._print(body)

    async def _command(self, identity: str, state: str) -> None:
        await self._print({"type": "command_lifecycle", "command_uuid": identity, "state": state})

    async def _print(self, body: Json) -> None:
        await self._output.message({**body, "session_id": self.session_id, "uuid": new_uuid()})


class PendingPrompts:
    """The prompts that wait for their result. Several prompts may share a turn.

    A session may also run turns that this run did not start: the rest of an earlier run that was killed, or its prompts
    that the host takes only now. A result belongs to this run if its turn has taken a prompt of this run. A result
    without such a turn tells that a prompt could not be taken: it belongs to the prompt that waits longest. The end of
    a task that was started during this run may start one more turn of this run."""

    def __init__(self) -> None:
        self.foreign_turn = False  # whether a turn is running that began before this run could see its prompts
        self.tasks: Newest[str, TaskMessage] = Newest(_MAX_TASKS)
        """The tasks that were started during this run and run in the background, by their id."""
        self._started: Newest[str, TaskMessage] = Newest(_MAX_TASKS)
        self._task_turn = False  # a turn runs that the end of a task has started
        self._waiting: dict[str, None] = {}
        self._seen: set[str] = set()
        # The newest inputs that the running turn has taken, and that were answered.
        self._in_turn: Newest[str, None] = Newest(_MAX_INPUTS)
        self._answered: Newest[str, None] = Newest(_MAX_INPUTS)
        self._turn_has_prompts = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def more_to_come(self) -> bool:
        return bool(self.tasks) or self._task_turn

    def task_news(self, line: TaskMessage) -> bool:
        """Return whether other tasks than before run in the background now."""
        before = len(self.tasks)
        if line.subtype == "task_notification":
            self.tasks.pop(line.task_id, None)
            self._started.pop(line.task_id, None)
        else:
            kept = replace(line, body={}, description=line.description[:_MAX_TEXT])
            started = self._started.setdefault(line.task_id, kept)
            if line.in_background:
                self.tasks[line.task_id] = started
        return len(self.tasks) != before

    def taken_back(self, input_id: str) -> None:
        self._waiting.pop(input_id, None)

    def sent(self, input_id: str) -> None:
        if input_id not in self._seen:
            self._seen.add(input_id)
            if input_id not in self._answered:
                self._waiting[input_id] = None

    def runs_already(self, input_ids: Iterable[str]) -> None:
        self._take(input_ids)
        self.foreign_turn = bool(self._in_turn)

    def answered_before(self, input_id: str) -> bool:
        """Note that a prompt was answered before this run. Return whether it waits for its result."""
        return self._waiting.pop(input_id, self) is None

    def turn_began_or_ended(self) -> None:
        """Note that no turn is running, or that a turn begins whose prompts are still to come."""
        self.foreign_turn = False
        self._forget_turn()

    def taken(self, input_ids: Sequence[str]) -> None:
        self._turn_has_prompts = True
        from ccb.tunnel.wire.journal_records import TASK_PREFIX

        self._task_turn = self._task_turn or any(each.startswith(TASK_PREFIX) for each in input_ids)
        self._take(input_ids)

    def _take(self, input_ids: Iterable[str]) -> None:
        for each in input_ids:
            self._in_turn[each] = None

    def answered(self) -> list[str]:
        """Return the prompts that wait for the result that comes now."""
        if self._turn_has_prompts or self.foreign_turn:
            return [input_id for input_id in self._waiting if input_id in self._in_turn]
        return list(self._waiting)[:1]

    def result_came(self) -> bool:
        """Note that a turn has ended. Return whether this run started it."""
        answered = self.answered()
        for input_id in answered:
            del self._waiting[input_id]
        for input_id in self._in_turn:
            self._answered[input_id] = None
        ours = bool(answered) or (self._task_turn and not self.foreign_turn)
        self.foreign_turn = False
        self._forget_turn()
        return ours

    def given_up(self) -> None:
        for input_id in list(self._waiting)[:1]:
            del self._waiting[input_id]
        self._forget_turn()

    def _forget_turn(self) -> None:
        self._in_turn.clear()
        self._task_turn = False
        self._turn_has_prompts = False


@dataclass(eq=False)
class TurnResults:
    """`print_all`: also results of turns that this run did not start. `print_failures`: also if the host sent none."""

    reports: TurnReports
    output: HeadlessOutput
    retries: RetryReports
    print_all: bool
    print_failures: bool
    pending: PendingPrompts = field(default_factory=PendingPrompts)
    printed: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    commands_wait: bool = False
    denied_unasked: bool = False
    _started: float = field(default_factory=time.monotonic)
    _last: Json | None = None
    _count: int = 0
    _used: Json = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self._last is not None and not self.pending and not self.commands_wait

    @property
    def exit_code(self) -> ExitCode:
        """The exit code for the last result. A client of messages has seen that a call was denied."""
        denied = self.denied_unasked and not self.print_all
        if self._last is None:
            return ExitCode.OK
        return exit_code(self._last, denied_unasked=denied, wants_answer=not self.print_failures)

    async def from_host(self, result: Json) -> None:
        if self.pending.result_came() or self.print_all:
            await self._print(result)

    async def task_news(self, line: TaskMessage) -> None:
        if self.pending.task_news(line):
            await self.reports.background(self.pending.tasks.values())

    async def answered_before(self, input_id: str, result: Json) -> None:
        """Print the result of a prompt that was answered before this run, if the prompt waits for it."""
        if self.pending.answered_before(input_id):
            await self._print_outside(input_id, result)

    async def fail(self, session_id: str, errors: list[str], *, reason: str) -> None:
        if self.complete or not self.print_failures:
            return
        duration = round((time.monotonic() - self._started) * 1000)
        self.pending.given_up()
        await self._print(local_result(session_id, errors, reason=reason, duration_ms=duration))
        await self.reports.turn_ended()

    async def settled(self) -> None:
        while self.pending or self.reports.in_turn:
            self.news.clear()
            await self.news.wait()

    async def of_command(self, text: str, identity: str = "") -> None:
        await self.reports.queued(identity, identity)
        await self._print_outside(identity, command_message(self.reports.session_id, text, self._last or {}))

    async def _print_outside(self, input_id: str, result: Json) -> None:
        prompt = await self.reports.began_before(input_id)
        await self._print(result, prompt)
        await self.reports.ended_before(prompt, more=bool(self.pending))

    async def _print(self, result: Json, prompts: Json | None = None) -> None:
        if self.print_all:
            place: Json = {"queued_turn_count": len(self.pending), "result_index": self._count}
            used, self._used = self._used, result.get("modelUsage") or {}
            place["model_usage_since_last_result"] = usage_between(used, self._used)
            result = {**result, **place, **(self.reports.prompts_of_turn if prompts is None else prompts)}
            self._count += 1
        self._last = result
        self.retries.turn_ended(result)
        await self.output.result(result)
        self.printed.set()
