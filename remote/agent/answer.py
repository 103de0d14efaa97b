"""Receives the model's answers of one turn: records each finished block, and submits tool calls at once."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Callable

from ccb.tunnel.wire.records import WithdrawnRecord
from ccb.tunnel.wire.requests import new_uuid
from ccb.tunnel.wire.tool_traits import own_name

from ..model.call import Retrying
from ..model.clock import Clock
from ..model.stream import BlockDone, MessageHead
from ..tools.contract import Tool
from . import messages
from .recorder import Recorder
from .tool_calls.executor import ToolCall

Json = dict[str, Any]

_log = logging.getLogger(__name__)

_WORD = re.compile(r"[A-Za-z0-9_-]{1,128}")  # what the API accepts as the id and the name of a tool_use


class AnswerListener:
    """The CallListener of a turn. `partial_messages`: clients asked for the raw events of the stream."""

    def __init__(
        self,
        recorder: Recorder,
        clock: Clock,
        tools: Mapping[str, Tool],
        submit: Callable[[ToolCall], None],
        *,
        partial_messages: bool,
    ) -> None:
        self.texts: list[str] = []
        """The text blocks of the answer, its continuations after a `max_tokens` stop included."""
        self.submitted = 0
        """The number of tool calls in the current answer."""
        self._recorder = recorder
        self._clock = clock
        self._tools = tools
        self._submit = submit
        self._partial_messages = partial_messages
        self._asked = ""  # the model
        self._asked_at = clock.now()
        self.first_ms: int | None = None
        """The milliseconds from the first model call of the turn to the beginning of its answer, None before."""

    def begin(self, model: str, *, continues: bool) -> None:
        """Prepare for a call of `model`. With `continues`, its answer goes on where the last one was cut."""
        self.submitted = 0
        self._asked = model
        self._asked_at = self._clock.now()
        if not continues:
            self.texts = []

    def event(self, event: Json) -> None:
        """Show a raw event of the stream to clients that asked for it."""
        body: Json = {"type": "stream_event", "event": event, "parent_tool_use_id": None}
        if event.get("type") == "message_start":
            body["ttft_ms"] = round((self._clock.now() - self._asked_at) * 1000)
            self.first_ms = body["ttft_ms"] if self.first_ms is None else self.first_ms
        if self._partial_messages:
            self._recorder.progress("", body)

    def block(self, head: MessageHead, done: BlockDone, request_id: str) -> None:
        """Record a finished block; a tool call may start at once."""
        block = done.block
        is_call = block.get("type") == "tool_use"
        if is_call:
            block = self._sendable(block)
        self._recorder.message(messages.assistant(head, block, request_id, self._clock.wall(), self._asked))
        if block.get("type") == "text":
            self.texts.append(block["text"])
        if is_call:
            self.submitted += 1
            self._submit(self._call(block, done.broken))

    def _call(self, block: Json, broken: str) -> ToolCall:
        name, tool_input = block["name"], block["input"]
        tool = self._tools.get(name) or self._tools.get(own_name(name))
        meant = tool.stands_for(tool_input) if tool is not None and not broken else None
        if meant is not None:
            name, tool_input = meant
            tool = self._tools.get(name)
        if tool is not None and not broken:
            tool_input = tool.meant(tool_input)
        return ToolCall(block["id"], name, tool_input, tool, broken)

    def _sendable(self, block: Json) -> Json:
        """Return the tool call with a unique id and a valid name, because the API refuses a history with others. Some
        providers count ids from zero in each answer."""
        if not _WORD.fullmatch(block["id"]) or self._recorder.conversation.is_used(block["id"]):
            block = {**block, "id": f"toolu_{new_uuid().replace('-', '')}"}
        if not _WORD.fullmatch(block["name"]):
            block = {**block, "name": re.sub(r"[^A-Za-z0-9_-]", "_", block["name"])[:128] or "unknown"}
        return block

    def withdrawn(self, message_id: str) -> None:
        """Record that the blocks of this answer do not count. The model is asked again."""
        self._recorder.record(WithdrawnRecord(message_id))
        self.texts = []

    def silence(self, silent: float | None, left: float) -> None:
        """Show how long the model has said nothing, and when it is asked again."""
        self._recorder.progress("silence", messages.model_silent(silent, left))

    def retrying(self, retry: Retrying) -> None:
        """Report that an attempt failed and another one follows."""
        _log.warning(
            "model call failed (%s), attempt %d of %d follows in %.1f s",
            retry.failure.kind,
            retry.attempt,
            retry.max_retries,
            retry.delay,
        )
        self._recorder.message(messages.api_retry(retry))
