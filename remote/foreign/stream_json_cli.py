"""An agent whose lines are public stream-json messages already, as those of Claude Code: they pass, under the ids of
this session."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ccb.tunnel.wire import messages
from ccb.tunnel.wire.control_protocol import (
    CAN_USE_TOOL,
    Answer,
    AskedBecause,
    Failure,
    Request,
    RequestFailed,
    RequestMoot,
    Success,
    ToolApproval,
    ToolPermission,
    answer_in,
    new_uuid,
    public_answer,
)
from ccb.tunnel.wire.frames import FrameError, Json
from ccb.tunnel.wire.journal_records import agent_of_message
from ccb.tunnel.wire.json_rpc import MAX_OPEN
from ccb.tunnel.wire.messages import as_blocks, as_dict, as_text
from ccb.tunnel.wire.model_facts import TOKENS, count
from ccb.tunnel.wire.ndjson import MAX_FRAME, LineSplitter, count_values, dump_line, load, to_bytes

from ..agent.agent_messages import INTERRUPTED, mode_message
from ..agent.turn_state import EndReason, TurnEnding
from ..permissions.modes import ACCEPT_EDITS, BYPASS, DEFAULT, DONT_ASK, PLAN
from ..session_store.journal import NotKept
from ..system.deadline import within
from ..system.stdio_process import StdioProcess
from .acp_translation import AgentChoice
from .answer_writer import AnswerWriter
from .foreign_session import AgentFacts, AgentFailed, LentToAgent

log = logging.getLogger(__name__)

_START_S, _CHANGE_S = 60.0, 20.0
_PASSED = ("api_retry", "permission_denied")  # subtypes of `system` messages that mean the same here
_OWN_IDS = ("session_id", "uuid")
_ENDS = {"error_max_turns": EndReason.MAX_TURNS, "error_max_budget_usd": EndReason.BUDGET_EXHAUSTED}


class StreamJsonCli:
    """See `AgentConnection`."""

    def __init__(self, name: str, process: StdioProcess, lent: LentToAgent, known: str) -> None:
        modes = {mode: mode for mode in (DEFAULT, ACCEPT_EDITS, PLAN)}
        self.facts = AgentFacts(known, AgentChoice("", {}, takes_any=True), AgentChoice(DEFAULT, modes))
        self._name, self._process, self._lent = name, process, lent
        loop = asyncio.get_running_loop()
        self._answers: dict[str, asyncio.Future[Json]] = {}  # to requests of this end
        self._asking: dict[str, asyncio.Task[None]] = {}  # questions of the agent
        self._writer: AnswerWriter | None = None
        self._used: set[str] = set()  # the ids of calls
        self._open: set[str] = set()  # those without a result
        self._result: asyncio.Future[Json] = loop.create_future()
        self._interrupted = False
        self._serving = loop.create_task(self._serve())

    async def open(self, known: str) -> bool:
        told = await self._request({"subtype": "initialize"}, _START_S)
        self.facts.commands = [
            (as_text(each.get("name")).lstrip("/"), as_text(each.get("description")), as_text(each.get("argumentHint")))
            for each in as_blocks(told.get("commands"))
            if each.get("name")
        ]
        listed = as_blocks(told.get("models"))
        models = {as_text(each.get("value")): as_text(each.get("displayName")) for each in listed}
        self.facts.models = AgentChoice("", models, takes_any=True)
        return bool(known)

    async def begin_anew(self) -> None:
        raise AgentFailed(f"{self._name} begins a conversation when it starts")

    async def prompt(self, blocks: Sequence[Json], writer: AnswerWriter) -> TurnEnding:
        self._result = asyncio.get_running_loop().create_future()
        self._writer, self._interrupted = writer, False
        try:
            message = {"role": "user", "content": list(blocks)}
            self._send({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""})
            ends: set[asyncio.Future[Any]] = {self._result, self._serving}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not self._result.done():
                self._close_open("The agent has ended while this ran.")
                raise AgentFailed("")
            result = self._result.result()
            self._close_open("The agent has ended its turn without a result of this call.")
            return replace(self._ending(result), denials=tuple(as_blocks(result.get("permission_denials"))))
        finally:
            self._writer = None
            for task in self._asking.values():
                task.cancel()

    def _ending(self, result: Json) -> TurnEnding:
        subtype, text = as_text(result.get("subtype")), as_text(result.get("result"))
        self.facts.cost_usd = max(self.facts.cost_usd, messages.as_number(result.get("total_cost_usd")))
        self.facts.usage = as_dict(result.get("usage"))
        if self._interrupted:
            return TurnEnding(EndReason.ABORTED_STREAMING, errors=("Request interrupted by user",))
        if result.get("is_error") is not True:
            return TurnEnding(EndReason.COMPLETED, text=text)
        listed = result.get("errors")
        errors = tuple(map(as_text, listed)) if isinstance(listed, list) else ()
        end = _ENDS.get(subtype, EndReason.API_ERROR)
        return TurnEnding(end, text=text or "; ".join(errors), errors=errors or (text or f"{self._name} failed",))

    async def steer(self, blocks: Sequence[Json]) -> bool:
        return False

    async def cancel(self) -> None:
        self._interrupted = True
        try:
            self._send({"type": "control_request", "request_id": new_uuid(), "request": {"subtype": "interrupt"}})
        except AgentFailed as error:
            log.info("the agent is not told to stop: %s", error)

    async def use_model(self, value: str) -> None:
        await self._request({"subtype": "set_model", "model": value}, _CHANGE_S)
        self.facts.models = replace(self.facts.models, current=value)

    async def use_mode(self, value: str) -> None:
        await self._request({"subtype": "set_permission_mode", "mode": value}, _CHANGE_S)
        self.facts.modes = replace(self.facts.modes, current=value)

    async def close(self) -> None:
        tasks = [self._serving, *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _request(self, request: Json, seconds: float) -> Json:
        number = new_uuid()
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"type": "control_request", "request_id": number, "request": request})
            return await within(seconds, answer)
        except asyncio.TimeoutError:
            raise AgentFailed(f"{self._name} did not answer `{request['subtype']}` within {seconds:g} s") from None
        finally:
            del self._answers[number]

    def _send(self, body: Json) -> None:
        try:
            self._process.send(to_bytes(dump_line(body)) + b"\n")
        except OSError as error:
            self._process.kill(str(error))
            raise AgentFailed("") from None

    async def _serve(self) -> None:
        """Take lines until the agent ends."""
        lines = LineSplitter(MAX_FRAME)
        try:
            while data := await self._process.read():
                for line in lines.feed(data):
                    await self._take_line(line)
        except FrameError as error:
            self._process.kill(str(error))
        except NotKept as error:
            if not self._result.done():
                self._result.set_exception(error)
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(AgentFailed(""))

    async def _take_line(self, line: bytes) -> None:
        try:
            text = line.decode("utf-8")
            count_values(text)
            body = load(text)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            log.info("the agent %s says: %s", self._name, line[:200].decode("utf-8", "replace"))
            return
        self._take(messages.parse_message(body))
        await asyncio.sleep(0)  # other work of the worker goes on while the agent says much

    def _take(self, message: messages.PublicMessage) -> None:
        if isinstance(message, messages.ControlResponse):
            self._answered(message)
        elif isinstance(message, messages.ControlRequest):
            self._begin_answer(message)
        elif isinstance(message, messages.ControlCancel):
            asking = self._asking.get(message.request_id)
            if asking is not None:
                asking.cancel()
        elif isinstance(message, messages.SystemMessage) and message.subtype == "init":
            self.facts.session = as_text(message.body.get("session_id"))
            self.facts.models = replace(self.facts.models, current=message.model)
        elif self._writer is not None:
            self._pass_on(message, self._writer)

    def _pass_on(self, message: messages.PublicMessage, writer: AnswerWriter) -> None:
        body = {name: value for name, value in message.body.items() if name not in _OWN_IDS}
        if isinstance(message, messages.ResultMessage):
            if not self._result.done():
                self._result.set_result(message.body)
        elif isinstance(message, messages.StreamEventMessage) or body.get("subtype") == "status":
            writer.stream(body)
        elif isinstance(message, messages.AssistantMessage):
            self._said(message, body, writer)
        elif isinstance(message, messages.UserMessage):
            if not message.is_replay and message.text("") != INTERRUPTED:  # the turn says so itself
                self._results(message, body, writer)
        elif isinstance(message, messages.SystemMessage) and message.subtype in _PASSED:
            writer.show(body)
        elif isinstance(message, messages.CompactMessage) and not message.is_micro:
            writer.tell(f"{self._name} has summed up its conversation.")

    def _said(self, message: messages.AssistantMessage, body: Json, writer: AnswerWriter) -> None:
        usage = as_dict(as_dict(body.get("message")).get("usage"))
        self.facts.used = sum(count(usage, name) for name in TOKENS) or self.facts.used
        blocks = [each for each in message.blocks if each.get("type") != "tool_use" or self._is_new(each, writer)]
        if not blocks:
            return
        writer.show({**body, "message": {**body["message"], "content": blocks}})
        for each in blocks:
            if each.get("type") == "tool_use":
                writer.started(as_text(each.get("id")), as_text(each.get("name")))

    def _is_new(self, call: Json, writer: AnswerWriter) -> bool:
        """Take a call, unless its id is that of another one."""
        tool_use_id = as_text(call.get("id"))
        if not tool_use_id or tool_use_id in self._used or writer.is_taken(tool_use_id):
            return False
        self._used.add(tool_use_id)
        self._open.add(tool_use_id)
        return True

    def _results(self, message: messages.UserMessage, body: Json, writer: AnswerWriter) -> None:
        blocks = [each for each in message.blocks if each.get("type") != "tool_result" or self._is_due(each)]
        if not blocks:
            return
        for each in blocks:
            writer.sub_agent_ended(as_text(each.get("tool_use_id")))
        if not any(each.get("type") == "tool_result" for each in blocks):
            body["isSynthetic"] = True  # the person has not said it
        writer.show({**body, "message": {**body["message"], "content": blocks}})
        writer.know_sub_agent(agent_of_message(body))

    def _is_due(self, result: Json) -> bool:
        """Take a result, unless its call has one already."""
        tool_use_id = as_text(result.get("tool_use_id"))
        is_due = tool_use_id in self._open
        self._open.discard(tool_use_id)
        return is_due

    def _close_open(self, why: str) -> None:
        for tool_use_id in sorted(self._open):
            if self._writer is not None:
                self._writer.result(tool_use_id, why, is_error=True)
        self._open.clear()

    def _answered(self, message: messages.ControlResponse) -> None:
        answer, said = self._answers.get(message.request_id), answer_in(message)
        if answer is None or answer.done():
            return
        if isinstance(said, Failure):
            answer.set_exception(AgentFailed(f"{self._name} refused it: {said.error}"))
        else:
            answer.set_result(said.payload or {})

    def _begin_answer(self, asked: messages.ControlRequest) -> None:
        if asked.subtype != CAN_USE_TOOL.name:
            self._reply(Failure(asked.request_id, f"ccb does not know {asked.subtype[:80]}"))
        elif self._writer is None or self._result.done():
            self._reply(Failure(asked.request_id, "nobody is asked between turns"))
        elif asked.request_id in self._asking or len(self._asking) >= MAX_OPEN:
            self._reply(Failure(asked.request_id, "the id is in use, or too many questions are open"))
        else:
            task = asyncio.get_running_loop().create_task(self._answer(asked))
            self._asking[asked.request_id] = task
            task.add_done_callback(lambda _: self._asking.pop(asked.request_id))

    def _reply(self, answer: Answer) -> None:
        with contextlib.suppress(AgentFailed):  # its end is for the turn to tell
            self._send(public_answer(answer))

    async def _answer(self, asked: messages.ControlRequest) -> None:
        try:
            answer = await self._permission(asked)
        except NotKept as error:
            if not self._result.done():
                self._result.set_exception(error)
            return
        if answer.allow:
            given = asked.input if answer.updated_input is None else answer.updated_input
            said: Json = {"behavior": "allow", "updatedInput": given, "updatedPermissions": list(answer.updates)}
        else:
            said = {"behavior": "deny", "message": answer.message or "The user refused.", "interrupt": answer.interrupt}
            self._interrupted = self._interrupted or answer.interrupt
        self._reply(Success(asked.request_id, said))

    async def _permission(self, asked: messages.ControlRequest) -> ToolPermission:
        mode, broker = self._lent.permissions.mode, self._lent.broker
        if mode in (BYPASS, DONT_ASK) or not broker.can_ask(CAN_USE_TOOL):
            return ToolPermission(mode == BYPASS, f"{asked.tool_name} was refused: nobody can be asked here.")
        suggested = as_blocks(asked.request.get("permission_suggestions"))
        why = AskedBecause(
            asked.text("decision_reason"), asked.text("decision_reason_type"), asked.text("blocked_path") or None
        )
        question = ToolApproval(
            asked.tool_name,
            asked.tool_name,
            asked.input,
            asked.text("tool_use_id"),
            suggested,
            why,
            asked.text("description")[:200] or None,
        )
        try:
            answer = await broker.request(Request(CAN_USE_TOOL, question, about=asked.tool_name))
            self._share_mode(answer.updates)
            return answer
        except (RequestFailed, RequestMoot) as error:
            return ToolPermission(False, str(error))

    def _share_mode(self, updates: Sequence[Json]) -> None:
        """Let a mode that the person has chosen at a question hold for ccb, too."""
        permissions = self._lent.permissions
        before = permissions.mode
        permissions.apply([each for each in updates if each.get("type") == "setMode"])
        if permissions.mode != before and self._writer is not None:
            self._writer.show(mode_message(permissions))
