"""Match results with the prompts that wait for them, and print one result for each turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.messages import TaskMessage

from ..command_line.exit_codes import ExitCode
from ..session.turn_outcomes import PendingPrompts, exit_code
from .output_formats import HeadlessOutput, RetryReports, command_message, local_result, usage_between

if TYPE_CHECKING:
    from ..session.session_client import Json

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
    _tasks: list[Json] = field(default_factory=list)  # that were told
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
        fields = ("task_id", "task_type", "description", "tool_use_id")
        listed = [{name: getattr(each, name) for name in fields} for each in tasks]
        if self._lifecycle and listed != self._tasks:
            self._tasks = listed
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

    async def from_host(self, result: Json, *, ours: bool) -> None:
        if ours or self.print_all:
            await self._print(result)

    async def answered_before(self, input_id: str, result: Json) -> None:
        """Print the result of a prompt that was answered before this run, if the prompt waits for it."""
        if self.pending.answered_before(input_id):
            await self._print_outside(input_id, result)

    async def fail(self, errors: list[str], *, reason: str) -> None:
        if self.complete or not self.print_failures:
            return
        duration = round((time.monotonic() - self._started) * 1000)
        self.pending.given_up()
        await self._print(local_result(self.reports.session_id, errors, reason=reason, duration_ms=duration))
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
