"""One prompt of an ACP agent: its updates go to the writer, its questions to the person."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, Request, RequestFailed, RequestMoot, ToolPermission, new_uuid
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_blocks, as_dict, as_text
from ccb.tunnel.wire.ndjson import to_bytes
from ccb.tunnel.wire.tool_traits import TODO_WRITE

from ..agent.agent_messages import session_title
from ..agent.tool_call import NOT_RUN, STOPPED
from ..tools.output import MAX_OUTPUT_CHARS, Output
from . import acp_translation as translation
from .answer_writer import TEXT, THINKING, AnswerWriter
from .foreign_session import LentToAgent

_MAX_CALLS = 1_000  # of one turn that have not ended
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TAIL_LINES, _TAIL_BYTES = 40, 8_192
_CHUNKS = {"agent_message_chunk": TEXT, "agent_thought_chunk": THINKING}
_STILL_RUNS = "The agent has ended its turn without a result of this call."
_DENIED = "The user denied this; it was not done."
_LEVELS = {"error": "error", "warning": "warning"}


@dataclass
class _Call:
    """`tool_use_id` is the agent's own id unless that is taken. `asks`: the person has not allowed it yet; `runs`: it
    may run. `output` is what a terminal of the call has shown."""

    tool_use_id: str
    known: Json
    name: str = ""  # once it is shown
    asks: bool = False
    runs: bool = False
    output: Output | None = None
    exit_code: object = None
    since: float = 0.0


class AcpTurn:
    """`interrupted`: the person has refused a call and thereby ended the turn."""

    def __init__(self, agent: str, lent: LentToAgent, writer: AnswerWriter) -> None:
        self.interrupted = False
        self.denials: list[Json] = []  # as results list them
        self._agent, self._lent, self._writer = agent, lent, writer
        self._calls: dict[str, _Call] = {}
        self._ended: set[str] = set()  # agents may go on about a call after its end

    def take(self, update: Json) -> None:
        """Take an update of the session. Raise NotKept."""
        kind = update.get("sessionUpdate")
        if kind in _CHUNKS:
            self._writer.say(_CHUNKS[kind], translation.text_in(as_dict(update.get("content"))))
        elif kind in ("tool_call", "tool_call_update"):
            self._take_call(update)
        elif kind == "plan":
            self._plan(translation.todos(update.get("entries")))
        elif kind == "session_info_update" and as_text(update.get("title")).strip():
            self._writer.show(session_title(as_text(update["title"]), generated=True))
        elif kind == "notice":
            text = ": ".join(filter(None, (as_text(update.get("title")), as_text(update.get("description")))))
            self._writer.tell(text, _LEVELS.get(as_text(update.get("severity")), "info"))
        elif kind == "compaction_update" and update.get("status") == "completed":
            self._writer.tell(f"{self._agent} has summed up its conversation.")

    async def ask(self, params: Json) -> Json:
        """Answer a question of the agent about a call. Raise NotKept."""
        call = self._take_call({**as_dict(params.get("toolCall")), "status": None}, asks=True)
        options = as_blocks(params.get("options"))
        answer = await self._permission(call, params) if call is not None else ToolPermission(False)
        if answer.allow and call is not None:
            call.asks = False
            self._start(call)
        elif call is not None:  # some agents say nothing more of it
            self.interrupted = self.interrupted or answer.interrupt
            use = translation.tool_use(call.known)
            denial = {"tool_name": use.name, "tool_use_id": call.tool_use_id, "tool_input": use.input}
            self.denials.append(denial)
            self._writer.result(call.tool_use_id, _DENIED, is_error=True)
            self._forget(as_text(call.known.get("toolCallId")))
        return {"outcome": translation.chosen_option(options, answer)}

    async def _permission(self, call: _Call, params: Json) -> ToolPermission:
        broker = self._lent.broker
        unasked = self._unasked(call)
        if unasked is not None:
            return ToolPermission(unasked)
        if not broker.can_ask(CAN_USE_TOOL):
            title = translation.title_of(call.known)
            self._writer.tell(f"{self._agent} asked for {title or call.name}. Nobody can be asked here: refused.")
            return ToolPermission(False)
        options = as_blocks(params.get("options"))
        question = translation.approval(self._agent, call.tool_use_id, call.known, options)
        request = Request(CAN_USE_TOOL, question, about=call.name, is_moot=lambda: self._unasked(call) is True)
        self._writer.end_block()
        try:
            return await broker.request(request)
        except RequestMoot:
            return ToolPermission(self._unasked(call) is True)
        except RequestFailed:
            return ToolPermission(False)

    def _unasked(self, call: _Call) -> bool | None:
        permissions = self._lent.permissions
        return translation.unasked_answer(permissions.mode, call.known, permissions.directories)

    def _plan(self, todos: list[Json]) -> None:
        tool_use_id = f"toolu_{new_uuid().replace('-', '')}"
        self._writer.call(tool_use_id, TODO_WRITE.name, {"todos": todos})
        self._writer.result(tool_use_id, "The plan was noted.", is_error=False)

    def _take_call(self, update: Mapping[str, Any], *, asks: bool = False) -> _Call | None:
        """Show a call, its output and its end as far as they are known. `asks`: it is before the person."""
        own_id = as_text(update.get("toolCallId"))
        call = self._calls.get(own_id)
        if call is None:
            if own_id in self._ended or len(self._calls) >= _MAX_CALLS:
                return None
            call = self._calls[own_id] = _Call(self._free_id(own_id), {}, since=time.monotonic())
        call.known = translation.merged_call(call.known, update)
        call.asks = call.asks or asks
        ended = translation.has_ended(call.known)
        if not call.name and (asks or translation.is_ready(call.known)):
            use = translation.tool_use(call.known)
            call.name = use.name
            self._writer.call(call.tool_use_id, use.name, use.input)
        self._start(call)
        self._print(call, as_dict(update.get("_meta")))
        if ended and call.name:
            self._end(call, own_id)
        return call

    def _free_id(self, own_id: str) -> str:
        taken = not _ID.fullmatch(own_id) or self._writer.is_taken(own_id)
        return f"toolu_{new_uuid().replace('-', '')}" if taken else own_id

    def _start(self, call: _Call) -> None:
        if call.name and not (call.asks or call.runs):
            call.runs = True
            self._writer.started(call.tool_use_id, call.name)

    def _print(self, call: _Call, meta: Mapping[str, Any]) -> None:
        data = as_text(as_dict(meta.get("terminal_output")).get("data"))
        ended = as_dict(meta.get("terminal_exit"))
        if ended:
            call.exit_code = ended.get("exit_code")
        if not data:
            return
        if call.output is None:
            call.output = Output(self._lent.context.spill, "agent")
        call.output.add(to_bytes(data))
        if call.name:
            shown = call.output.last(_TAIL_LINES, _TAIL_BYTES)
            seconds = time.monotonic() - call.since
            self._writer.printed(call.tool_use_id, call.name, seconds, shown, call.output.total)

    def _end(self, call: _Call, own_id: str) -> None:
        content = translation.result_content(call.known, self._printed(call), call.exit_code)
        self._writer.result(call.tool_use_id, content, is_error=call.known.get("status") == "failed")
        self._forget(own_id)

    def _forget(self, own_id: str) -> None:
        self._calls.pop(own_id, None)
        self._ended.add(own_id)

    def _printed(self, call: _Call) -> str:
        if call.output is None:
            return ""
        call.output.close()
        return call.output.text(MAX_OUTPUT_CHARS)

    def close(self, why: str = _STILL_RUNS, *, stopped: bool = False) -> None:
        """Close the calls that have no result. Raise NotKept."""
        for call in self._calls.values():
            printed = self._printed(call)
            if call.name:
                text = (NOT_RUN if call.asks else STOPPED) if stopped else why
                self._writer.result(call.tool_use_id, f"{text}\n{printed}".rstrip("\n"), is_error=True)
        self._calls.clear()
        self._writer.end_message()
