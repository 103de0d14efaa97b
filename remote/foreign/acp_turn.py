"""One prompt of an ACP agent: its updates go to the writer, its questions to the person."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any

from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, Request, RequestFailed, RequestMoot, ToolPermission, new_uuid
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_blocks, as_dict, as_text
from ccb.tunnel.wire.ndjson import to_bytes
from ccb.tunnel.wire.todo_list import MAX_TODOS
from ccb.tunnel.wire.tool_traits import TODO_WRITE

from ..agent.agent_messages import session_title
from ..agent.tool_call import NOT_RUN, STOPPED
from ..tools.output import MAX_OUTPUT_CHARS, Output
from . import acp_translation as translation
from .answer_writer import TEXT, THINKING, AnswerWriter
from .foreign_session import LentToAgent

_MAX_CALLS = 1_000  # of one turn that have not ended
_MAX_ID = 256  # characters of what an agent names
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TAIL_LINES, _TAIL_BYTES = 40, 8_192
_CHUNKS = {"agent_message_chunk": TEXT, "agent_thought_chunk": THINKING}
_DENIED = "The user denied this; it was not done."


@dataclass
class _Call:
    """`tool_use_id` is `own_id`, the agent's, unless that is taken. `asks`: the person has not allowed it yet; `runs`:
    it may run. `output` is what a terminal of the call has shown."""

    own_id: str
    tool_use_id: str
    known: Json
    name: str = ""  # once it is shown
    asks: bool = False
    runs: bool = False
    output: Output | None = None
    exit_code: object = None
    since: float = 0.0


class AcpTurn:
    """`interrupted`: the person has refused a call and thereby ended the turn. `stopped`: the agent was told to end it,
    and nobody is asked any more; `stopped_in_call`: with a call that had no result yet."""

    def __init__(self, agent: str, lent: LentToAgent, writer: AnswerWriter) -> None:
        self.interrupted = self.stopped = self.stopped_in_call = False
        self.told_to_stop = asyncio.Event()
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
            self._plan(as_blocks(update.get("entries"))[:MAX_TODOS])
        elif kind == "session_info_update" and as_text(update.get("title")).strip():
            self._writer.show(session_title(as_text(update["title"]), generated=True))
        elif kind == "notice":
            text = ": ".join(filter(None, (as_text(update.get("title")), as_text(update.get("description")))))
            severity = as_text(update.get("severity"))
            self._writer.tell(text, severity if severity in ("error", "warning") else "info")
        elif kind == "compaction_update" and update.get("status") == "completed":
            self._writer.tell(f"{self._agent} has summed up its conversation.")

    def stop(self) -> None:
        self.stopped, self.stopped_in_call = True, self.interrupted or bool(self._calls)
        self.told_to_stop.set()

    def tell_mode(self, name: str) -> None:
        self._writer.tell(f"{self._agent} has changed its own mode to {name[:_MAX_ID]}.", "warning")

    async def ask(self, params: Json) -> Json:
        """Answer a question of the agent about a call. Raise NotKept."""
        call = None if self.stopped else self._take_call({**as_dict(params.get("toolCall")), "status": None}, asks=True)
        answer = await self._permission(call, params) if call is not None else ToolPermission(False)
        if call is None or not self._is_open(call):  # it has ended meanwhile, or the turn has
            return translation.NOBODY_ANSWERS
        if answer.allow:
            call.asks = False
            self._start(call)
        else:  # some agents say nothing more of it
            self.interrupted = self.interrupted or answer.interrupt
            name, tool_input = translation.tool_use(call.known)
            self.denials.append({"tool_name": name, "tool_use_id": call.tool_use_id, "tool_input": tool_input})
            self._writer.result(call.tool_use_id, _DENIED, is_error=True)
            self._forget(call)
        return {"outcome": translation.chosen_option(as_blocks(params.get("options")), answer)}

    def _is_open(self, call: _Call) -> bool:
        return self._calls.get(call.own_id) is call

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

        def is_moot() -> bool:
            return not self._is_open(call) or self._unasked(call) is True

        request = Request(CAN_USE_TOOL, question, about=call.name, is_moot=is_moot)
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
        own_id = as_text(update.get("toolCallId"))[:_MAX_ID]
        call = self._calls.get(own_id)
        if call is None:
            if own_id in self._ended or len(self._calls) >= _MAX_CALLS:
                return None
            call = self._calls[own_id] = _Call(own_id, self._free_id(own_id), {}, since=time.monotonic())
        call.known = translation.merged_call(call.known, update)
        call.asks = call.asks or asks
        ended = translation.has_ended(call.known)
        if not call.name and (asks or translation.is_ready(call.known)):
            call.name, tool_input = translation.tool_use(call.known)
            self._writer.call(call.tool_use_id, call.name, tool_input)
        self._start(call)
        self._print(call, as_dict(update.get("_meta")))
        if ended and call.name:
            self._end(call)
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

    def _end(self, call: _Call) -> None:
        content = translation.result_content(call.known, self._printed(call), call.exit_code)
        self._writer.result(call.tool_use_id, content, is_error=call.known.get("status") == "failed")
        self._forget(call)

    def _forget(self, call: _Call) -> None:
        del self._calls[call.own_id]
        self._ended.add(call.own_id)
        if call.asks:
            self._lent.broker.reconsider()

    def _printed(self, call: _Call) -> str:
        if call.output is None:
            return ""
        call.output.close()
        return call.output.text(MAX_OUTPUT_CHARS)

    def close(self, why: str) -> None:
        """Close the calls that have no result, and their questions. Raise NotKept."""
        for call in self._calls.values():
            printed = self._printed(call)
            if call.name:
                text = (NOT_RUN if call.asks else STOPPED) if self.stopped or self.interrupted else why
                self._writer.result(call.tool_use_id, f"{text}\n{printed}".rstrip("\n"), is_error=True)
        self._calls.clear()
        self._lent.broker.reconsider()
        self._writer.end_message()
