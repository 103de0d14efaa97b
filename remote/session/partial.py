"""Unfinished work that is not in the journal: the answers that models are streaming, and the output of running
tools."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable

from ccb.tunnel.wire.messages import ResultLine, StreamEventLine, ToolProgressLine, UserLine, as_dict, parse_message
from ccb.tunnel.wire.projection import Projection, on
from ccb.tunnel.wire.records import AgentResultRecord, Record, WithdrawnRecord, agent_of_message

Json = dict[str, Any]

_TEXTS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
_MAX_TOOLS = 64


class _StreamedBlock:
    """A content block that is being streamed. Deltas of the same kind as the first one are joined."""

    def __init__(self, start: Json) -> None:
        self.start = start
        self.kind = ""
        self.pieces: list[str] = []
        self.rest: list[Json] = []  # deltas of other kinds, unchanged
        self.stop: Json | None = None

    def add(self, body: Json, delta: Json) -> None:
        name = _TEXTS.get(str(delta.get("type")), "")
        if name and self.kind in ("", delta["type"]):
            self.kind = str(delta["type"])
            self.pieces.append(str(delta.get(name, "")))
        else:
            self.rest.append(body)

    def bodies(self) -> list[Json]:
        """Return the block so far, in as few objects as possible."""
        found = [self.start]
        if self.pieces:
            delta = {"type": self.kind, _TEXTS[self.kind]: "".join(self.pieces)}
            index = as_dict(self.start.get("event")).get("index")
            event = {"type": "content_block_delta", "index": index, "delta": delta}
            found.append({**self.start, "event": event})
        return [*found, *self.rest, *([self.stop] if self.stop is not None else [])]


class _StreamedAnswer:
    """The answer that the model of one agent is streaming."""

    def __init__(self, start: Json, message_id: object) -> None:
        self.start = start
        self.message_id = message_id
        self.blocks: OrderedDict[int, _StreamedBlock] = OrderedDict()

    def add(self, body: Json, event: Json, index: int) -> None:
        kind, delta = event.get("type"), event.get("delta")
        if kind == "content_block_start":
            self.blocks[index] = _StreamedBlock(body)
        elif index not in self.blocks:
            return
        elif kind == "content_block_delta" and isinstance(delta, dict):
            self.blocks[index].add(body, delta)
        elif kind == "content_block_stop":
            self.blocks[index].stop = body

    def bodies(self) -> list[Json]:
        return [self.start, *(body for block in self.blocks.values() for body in block.bodies())]


class Partial(Projection):
    """Collects what a session shows as progress (`take`), drops what has reached the journal (`apply`), and returns the
    rest for a client that attaches in the middle (`bodies`)."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, _StreamedAnswer] = OrderedDict()  # by agent id
        self._tools: OrderedDict[str, tuple[ToolProgressLine, str]] = OrderedDict()  # slot -> newest output, agent id

    def take(self, key: str, body: Json) -> None:
        """Take the next public object that is not journalled; `key` is its slot, see `Emitter.progress`."""
        line = parse_message(body)
        agent_id = agent_of_message(body)
        if isinstance(line, StreamEventLine):
            self._stream(agent_id, line)
        elif isinstance(line, ToolProgressLine) and key:
            self._tools.pop(key, None)
            self._tools[key] = line, agent_id
            while len(self._tools) > _MAX_TOOLS:
                self._tools.popitem(last=False)

    def bodies(self) -> list[tuple[str, Json]]:
        """Return (slot, object) for all unfinished work, in order."""
        streamed = [("", body) for answer in self._answers.values() for body in answer.bodies()]
        return streamed + [(key, line.body) for key, (line, _) in self._tools.items()]

    @on(ResultLine, AgentResultRecord)
    def _result(self, _: ResultLine | AgentResultRecord, record: Record) -> None:
        """Drop the answer and the outputs of an agent whose turn is over."""
        self._answers.pop(record.agent_id, None)
        self._drop_tools(lambda line, agent_id: agent_id == record.agent_id)

    @on(UserLine)
    def _user(self, line: UserLine, _: Record) -> None:
        done = line.done_tool_uses()
        if done:
            self._drop_tools(lambda shown, _: shown.tool_use_id in done)

    @on(WithdrawnRecord)
    def _withdrawn(self, withdrawn: WithdrawnRecord, record: Record) -> None:
        answer = self._answers.get(record.agent_id)
        if answer is not None and answer.message_id == withdrawn.message_id:
            del self._answers[record.agent_id]

    def _drop_tools(self, done: Callable[[ToolProgressLine, str], bool]) -> None:
        for key in [key for key, (line, agent_id) in self._tools.items() if done(line, agent_id)]:
            del self._tools[key]

    def _stream(self, agent_id: str, line: StreamEventLine) -> None:
        kind, index = line.event.get("type"), line.event.get("index")
        answer = self._answers.get(agent_id)
        if kind == "message_start":
            message = as_dict(line.event.get("message"))
            self._answers[agent_id] = _StreamedAnswer(line.body, message.get("id"))
        elif kind == "message_stop":
            self._answers.pop(agent_id, None)
        elif answer is not None and isinstance(index, int):
            answer.add(line.body, line.event, index)
