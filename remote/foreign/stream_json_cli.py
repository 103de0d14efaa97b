"""An agent whose lines are public stream-json messages already, as those of Claude Code: they pass, under the ids of
this session."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import replace

from ccb.tunnel.wire import messages
from ccb.tunnel.wire.control_protocol import (
    CAN_USE_TOOL,
    SET_MODEL,
    SET_PERMISSION_MODE,
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
    public_withdrawal,
)
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import agent_of_message
from ccb.tunnel.wire.json_rpc import CANCEL_REQUEST, INVALID_REQUEST, RpcError
from ccb.tunnel.wire.messages import as_blocks, as_dict, as_text
from ccb.tunnel.wire.model_facts import TOKENS, count

from ..agent.agent_messages import INTERRUPTED, mode_message
from ..agent.turn_state import EndReason, ProgramChoice, TurnEnding
from ..permissions.modes import ACCEPT_EDITS, BYPASS, DEFAULT, DONT_ASK, PLAN
from ..system.stdio_process import StdioProcess
from .acp_translation import commands
from .answer_writer import AnswerWriter
from .foreign_session import CHANGE_S, ENDED, START_S, STILL_RUNS, AgentConnection, AgentFailed, LentToAgent

log = logging.getLogger(__name__)

_PASSED = ("api_retry", "permission_denied")  # subtypes of `system` messages that mean the same here
_OWN_IDS = ("session_id", "uuid")
_ENDS = {"error_max_turns": EndReason.MAX_TURNS, "error_max_budget_usd": EndReason.BUDGET_EXHAUSTED}


class StreamJsonCli(AgentConnection):
    """Its control requests are requests here, each other line of it is a `say`, and a prompt is answered by the result
    of its turn."""

    def __init__(self, name: str, process: StdioProcess, lent: LentToAgent, known: str) -> None:
        handlers = {"say": self._take, CAN_USE_TOOL.name: self._answer}
        super().__init__(name, process, lent, handlers, (CAN_USE_TOOL.name,), self._incoming, self._outgoing)
        modes = {mode: mode for mode in (DEFAULT, ACCEPT_EDITS, PLAN)}
        self.facts.session, self.facts.modes = known, ProgramChoice(DEFAULT, modes)
        self.facts.models = ProgramChoice("", {}, takes_any=True)
        self._prompt: object = None  # the number of the one whose turn runs
        self._writer: AnswerWriter | None = None
        self._used: set[str] = set()  # the ids of calls
        self._open: set[str] = set()  # those without a result
        self._sub_agents: set[str] = set()  # those that have said something and have no result
        self._interrupted = False

    def _outgoing(self, message: Json) -> Json | None:
        method, number, params = message.get("method"), message.get("id"), message.get("params", {})
        if method == "user":
            self._prompt = number
            return {"type": "user", "message": params, "parent_tool_use_id": None, "session_id": ""}
        if method == CANCEL_REQUEST:
            return public_withdrawal(str(params["requestId"]))
        if method is not None:
            sent = new_uuid() if number is None else str(number)
            return {"type": "control_request", "request_id": sent, "request": {"subtype": method, **params}}
        if "result" in message:
            return public_answer(Success(str(number), message["result"]))
        if number is None:
            log.info("the agent %s: %s", self._name, message["error"]["message"])
            return None
        return public_answer(Failure(str(number), message["error"]["message"]))

    def _incoming(self, body: Json) -> Json:
        message = messages.parse_message(body)
        params = {"sessionId": "", "message": message}
        if isinstance(message, messages.ControlResponse):
            said = answer_in(message)
            told = {"error": {"message": said.error}} if isinstance(said, Failure) else {"result": said.payload or {}}
            return {"id": int(said.request_id) if re.fullmatch("[0-9]{1,9}", said.request_id) else 0, **told}
        if isinstance(message, messages.ControlRequest):
            return {"id": message.request_id, "method": message.subtype, "params": params}
        if isinstance(message, messages.ControlCancel):
            return {"method": CANCEL_REQUEST, "params": {"requestId": message.request_id}}
        if isinstance(message, messages.ResultMessage) and self._prompt is not None:
            number, self._prompt = self._prompt, None
            return {"id": number, "result": body}
        return {"method": "say", "params": params}

    async def open(self, known: str) -> None:
        told = await self._request("initialize", {}, START_S)
        self.facts.commands = commands(told.get("commands"))
        listed = as_blocks(told.get("models"))
        models = {as_text(each.get("value")): as_text(each.get("displayName")) for each in listed}
        self.facts.models = ProgramChoice("", models, takes_any=True)

    async def prompt(self, blocks: Sequence[Json], writer: AnswerWriter) -> TurnEnding:
        self._writer, self._interrupted = writer, False
        try:
            result = await self._request("user", {"role": "user", "content": list(blocks)}, None)
            self._close_open(STILL_RUNS)
            return replace(self._ending(result), denials=tuple(as_blocks(result.get("permission_denials"))))
        except AgentFailed:
            self._close_open(ENDED)
            raise
        finally:
            self._writer = self._prompt = None

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

    async def cancel(self) -> None:
        self._interrupted = True
        await self._notify("interrupt", {})

    async def choose(self, category: str, value: str) -> None:
        subtype = SET_MODEL if category == "model" else SET_PERMISSION_MODE
        await self._request(subtype.name, {category: value}, CHANGE_S)

    async def _take(self, params: Json) -> None:
        message: messages.PublicMessage = params["message"]
        if isinstance(message, messages.SystemMessage) and message.subtype == "init":
            self.facts.session = as_text(message.body.get("session_id"))
            self.facts.models = replace(self.facts.models, current=message.model)
        elif self._writer is not None:
            self._pass_on(message, self._writer)

    def _pass_on(self, message: messages.PublicMessage, writer: AnswerWriter) -> None:
        body = {name: value for name, value in message.body.items() if name not in _OWN_IDS}
        self._sub_agents |= {agent_of_message(body)} & self._open
        told = message.subtype if isinstance(message, messages.SystemMessage) else ""
        if isinstance(message, messages.StreamEventMessage) or told == "status":
            writer.stream(body)
        elif isinstance(message, messages.AssistantMessage):
            self._said(message, body, writer)
        elif isinstance(message, messages.UserMessage):
            if not message.is_replay and message.text("") != INTERRUPTED:  # the turn says so itself
                self._results(message, body, writer)
        elif told in _PASSED:
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
        for each in message.done_tool_uses() & self._sub_agents - self._open:
            self._sub_agents.discard(each)
            writer.sub_agent_ended(each)
        if not any(each.get("type") == "tool_result" for each in blocks):
            body["isSynthetic"] = True  # the person has not said it
        writer.show({**body, "message": {**body["message"], "content": blocks}})

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
        self._lent.broker.reconsider()

    async def _answer(self, params: Json) -> Json:
        asked: messages.ControlRequest = params["message"]
        if self._prompt is None:
            raise RpcError(INVALID_REQUEST, "nobody is asked between turns")
        try:
            answer = await self._permission(asked)
        except asyncio.CancelledError:
            if self._peer.has_ended:
                raise
            # An interrupt withdraws it, or the agent, which reads no answer then.
            return {"behavior": "deny", "message": "The question was withdrawn.", "interrupt": True}
        if answer.allow:
            given = asked.input if answer.updated_input is None else answer.updated_input
            return {"behavior": "allow", "updatedInput": given, "updatedPermissions": list(answer.updates)}
        self._interrupted = self._interrupted or answer.interrupt
        message = answer.message or "The user refused."
        return {"behavior": "deny", "message": message, "interrupt": answer.interrupt}

    async def _permission(self, asked: messages.ControlRequest) -> ToolPermission:
        mode, broker = self._lent.permissions.mode, self._lent.broker
        if mode in (BYPASS, DONT_ASK) or not broker.can_ask(CAN_USE_TOOL):
            return ToolPermission(mode == BYPASS, f"{asked.tool_name} was refused: nobody can be asked here.")
        text, suggested = asked.text, as_blocks(asked.request.get("permission_suggestions"))
        why = AskedBecause(text("decision_reason"), text("decision_reason_type"), text("blocked_path") or None)
        about, called = text("description")[:200] or None, text("tool_use_id")
        question = ToolApproval(asked.tool_name, asked.tool_name, asked.input, called, suggested, why, about)
        prompt = self._prompt

        def is_moot() -> bool:
            return self._prompt is not prompt

        try:
            answer = await broker.request(Request(CAN_USE_TOOL, question, about=asked.tool_name, is_moot=is_moot))
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
