"""Writes what an agent does in a turn: its words as they come, whole messages into the journal, calls and results."""

from __future__ import annotations

import time

from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import AgentResultRecord, ModelEndRecord, ToolStartRecord

from ..agent import agent_messages
from ..agent.agent_histories import AgentLog, zero_usage
from ..agent.conversation import tool_result_message
from ..agent.turn_state import EndReason, ProgramFacts, TurnEnding
from ..model.answer_stream import MessageHead

TEXT, THINKING = "text", "thinking"
_MAX_BLOCK = 1 << 20  # characters; a longer block goes on as another one
_KEPT_MESSAGES = 20  # in memory
_DELTAS = {TEXT: "text_delta", THINKING: "thinking_delta"}


class AnswerWriter:
    """`last_text` is the text since the last call. Every method raises NotKept."""

    def __init__(self, log: AgentLog, facts: ProgramFacts, *, shows_parts: bool) -> None:
        self.last_text = ""
        self._log, self._facts, self._shows_parts = log, facts, shows_parts
        self._head: MessageHead | None = None
        self._index = 0
        self._kind = ""  # of the open block
        self._text: list[str] = []
        self._size = 0

    def is_taken(self, tool_use_id: str) -> bool:
        return tool_use_id in self._log.conversation.used_ids

    def say(self, kind: str, text: str) -> None:
        """Take a piece of text or thinking."""
        if not text:
            return
        if kind != self._kind or self._size > _MAX_BLOCK:
            self.end_block()
            self._message()
            self._kind = kind
            block = {"type": kind, kind: ""}
            self._stream({"type": "content_block_start", "index": self._index, "content_block": block})
        self._text.append(text)
        self._size += len(text)
        delta = {"type": _DELTAS[kind], kind: text}
        self._stream({"type": "content_block_delta", "index": self._index, "delta": delta})

    def call(self, tool_use_id: str, name: str, tool_input: Json) -> None:
        self.end_block()
        self.last_text = ""
        block = {"type": "tool_use", "id": tool_use_id, "name": name, "input": tool_input}
        self._log.message(agent_messages.assistant(self._message(), block, "", time.time()))
        self._index += 1

    def started(self, tool_use_id: str, name: str) -> None:
        self._log.record(ToolStartRecord(tool_use_id, name))

    def printed(self, tool_use_id: str, name: str, seconds: float, output: str, total: int) -> None:
        body = agent_messages.tool_progress(name, tool_use_id, round(seconds, 3), output=output, total_bytes=total)
        self._log.progress(tool_use_id, body)

    def result(self, tool_use_id: str, content: str | list[Json], *, is_error: bool) -> None:
        self.end_message()
        self.show(tool_result_message(tool_use_id, content, is_error=is_error))

    def tell(self, text: str, level: str = "info") -> None:
        """Tell the person."""
        self.show(agent_messages.informational(text, level))

    def failed(self, text: str) -> TurnEnding:
        """Show an error of the agent or its model. Return the end of the turn."""
        self.end_message()
        said = f"API Error: {text}"
        self.show(agent_messages.api_error(said, None, "unknown", time.time()))
        return TurnEnding(EndReason.API_ERROR, text=said)

    def show(self, body: Json) -> None:
        self._log.message(body)
        self._log.conversation.keep_newest(_KEPT_MESSAGES)  # the agent has a history of its own

    def stream(self, body: Json) -> None:
        """Show a `stream_event`, if the client wants such."""
        if self._shows_parts:
            self._log.progress("", body)

    def sub_agent_ended(self, tool_use_id: str) -> None:
        result = {"type": "result", "subtype": "success", "is_error": False, "result": ""}
        self._log.of_sub_agent(AgentResultRecord(result), tool_use_id)

    def end_block(self) -> None:
        kind, text = self._kind, "".join(self._text)
        if not kind:
            return
        self._kind, self._text, self._size = "", [], 0
        self._stream({"type": "content_block_stop", "index": self._index})
        block = {"type": kind, kind: text, **({"signature": ""} if kind == THINKING else {})}
        self._log.message(agent_messages.assistant(self._message(), block, "", time.time(), self._facts.models.current))
        self._index += 1
        if kind == TEXT:
            self.last_text = (self.last_text + text)[-_MAX_BLOCK:]

    def end_message(self) -> None:
        self.end_block()
        if self._head is not None:
            self._stream({"type": "message_stop"})
            self._log.record(ModelEndRecord(self._head.id, None, {"input_tokens": self._facts.used}))
            self._head, self._index = None, 0

    def _message(self) -> MessageHead:
        if self._head is None:
            model = self._facts.models.current
            self._head = MessageHead(f"msg_{new_uuid().replace('-', '')}", model, zero_usage())
            message = {"id": self._head.id, "type": "message", "role": "assistant", "model": model, "content": []}
            self._stream({"type": "message_start", "message": message})
        return self._head

    def _stream(self, event: Json) -> None:
        self.stream({"type": "stream_event", "event": event, "parent_tool_use_id": None})
