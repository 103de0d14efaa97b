"""The model message that is just being streamed, and the output of running tools, for a client that comes in the middle."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

Json = dict[str, Any]

_TEXTS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
_MAX_TOOLS = 64


class _Block:
    def __init__(self, start: Json) -> None:
        self.start = start
        self.kind = ""
        self.pieces: list[str] = []
        self.rest: list[Json] = []  # deltas of other kinds, as they came
        self.stop: Json | None = None

    def delta(self, body: Json, delta: Json) -> None:
        name = _TEXTS.get(str(delta.get("type")), "")
        if name and self.kind in ("", delta["type"]):
            self.kind = str(delta["type"])
            self.pieces.append(str(delta.get(name, "")))
        else:
            self.rest.append(body)


class Partial:
    """Fed with what a session shows as progress; gives it again in as few objects as say the same."""

    def __init__(self) -> None:
        self._start: Json | None = None
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._tools: OrderedDict[str, Json] = OrderedDict()

    def take(self, key: str, body: Json) -> None:
        """The next public object that is not journalled."""
        if body.get("type") == "stream_event" and isinstance(body.get("event"), dict):
            self._event(body, body["event"])
        elif body.get("type") == "tool_progress" and key:
            self._tools.pop(key, None)
            self._tools[key] = body
            while len(self._tools) > _MAX_TOOLS:
                self._tools.popitem(last=False)

    def message(self, body: Json) -> None:
        """A message is in the journal: what it holds is partial no more."""
        kind = body.get("type")
        if kind == "result":
            self._start = None
            self._blocks.clear()
            self._tools.clear()
        elif kind == "user":
            message = body.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            done = {block.get("tool_use_id") for block in content or () if isinstance(block, dict)}
            for key in [key for key, shown in self._tools.items() if shown.get("tool_use_id") in done]:
                del self._tools[key]

    def withdraw(self, message_id: str) -> None:
        """The answer of this id does not count."""
        message = self._start["event"].get("message") if self._start is not None else None
        if isinstance(message, dict) and message.get("id") == message_id:
            self._start = None
            self._blocks.clear()

    def _event(self, body: Json, event: Json) -> None:
        kind, index = event.get("type"), event.get("index")
        if kind == "message_start":
            self._start = body
            self._blocks.clear()
        elif kind == "message_stop":
            self._start = None
            self._blocks.clear()
        elif self._start is None or not isinstance(index, int):
            return
        elif kind == "content_block_start":
            self._blocks[index] = _Block(body)
        elif index in self._blocks and kind == "content_block_delta" and isinstance(event.get("delta"), dict):
            self._blocks[index].delta(body, event["delta"])
        elif index in self._blocks and kind == "content_block_stop":
            self._blocks[index].stop = body

    def bodies(self) -> list[tuple[str, Json]]:
        """(key, object) of all that is under way, in order."""
        found: list[tuple[str, Json]] = []
        if self._start is not None:
            found.append(("", self._start))
            for index, block in self._blocks.items():
                found.append(("", block.start))
                if block.pieces:
                    delta = {"type": block.kind, _TEXTS[block.kind]: "".join(block.pieces)}
                    event = {"type": "content_block_delta", "index": index, "delta": delta}
                    found.append(("", {**block.start, "event": event}))
                found += [("", body) for body in block.rest]
                if block.stop is not None:
                    found.append(("", block.stop))
        return found + list(self._tools.items())
