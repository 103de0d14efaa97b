"""What a client has to know of events it is not sent: kept up to date record by record, never read back from the journal."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from ccb.tunnel.wire.tool_traits import TODO_WRITE

Json = dict[str, Any]

_MOST_PROMPTS = 64
_MOST_TEXT = 2_000  # characters of a prompt
_UNTIL_THE_END = 1 << 62


class _Prompt:
    """A prompt and the numbers of the events at which it came, was taken by a turn, and that turn ended."""

    def __init__(self, seq: int, input_id: str, body: Json) -> None:
        self.seq = seq
        self.taken = self.ended = _UNTIL_THE_END
        self.input_id = input_id
        self.uuid = str(body.get("uuid") or "")
        self.text = _start_of(body)


class Picture:
    """The last result and list of todos, the questions that are open with the seq they were asked at, and the newest prompts."""

    def __init__(self) -> None:
        self._prompts: deque[_Prompt] = deque(maxlen=_MOST_PROMPTS)
        self._result: Json | None = None
        self._todos: list[Any] | None = None
        self._asks: OrderedDict[str, tuple[int, Json]] = OrderedDict()

    def take(self, seq: int, kind: str, body: Json) -> None:
        """The next record of the journal."""
        if kind == "input":
            inner = body.get("body")
            response = inner.get("response") if isinstance(inner, dict) else None
            if isinstance(response, dict):
                self._asks.pop(str(response.get("request_id")), None)
            elif isinstance(inner, dict) and inner.get("type") == "user":
                self._prompted(_Prompt(seq, str(body.get("id")), inner))
        elif kind == "prompt":
            items = body.get("items")
            taken = {item.get("input") for item in items if isinstance(item, dict)} if isinstance(items, list) else ()
            for prompt in self._prompts:
                if prompt.input_id in taken:
                    prompt.taken = min(prompt.taken, seq)
        elif kind in ("turn_end", "forked"):  # what waits or runs in the original does not in its copy
            for prompt in self._prompts:
                if prompt.taken < seq or kind == "forked":
                    prompt.ended = min(prompt.ended, seq)
            if kind == "forked":
                self._asks.clear()
        elif kind == "message":
            self._message(seq, body)

    def _prompted(self, new: _Prompt) -> None:
        """A message that was sent before is no prompt."""
        if not new.uuid or all(prompt.uuid != new.uuid for prompt in self._prompts):
            self._prompts.append(new)

    def _message(self, seq: int, body: Json) -> None:
        kind = body.get("type")
        if kind == "result":
            self._result = body
        elif kind == "control_request":
            self._asks[str(body.get("request_id"))] = (seq, body)
        elif kind == "control_cancel_request":
            self._asks.pop(str(body.get("request_id")), None)
        elif kind == "assistant":
            message = body.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            for block in content if isinstance(content, list) else ():
                if (
                    isinstance(block, dict)
                    and block.get("name") == TODO_WRITE.name
                    and isinstance(block.get("input"), dict)
                ):
                    todos = block["input"].get("todos")
                    self._todos = todos if isinstance(todos, list) else self._todos

    def body(self, seq: int, *, model: str, mode: str) -> Json:
        """The body of a snapshot of everything up to `seq`."""
        asks = [body for asked, body in self._asks.values() if asked <= seq]
        prompts = [
            {"input": prompt.input_id, "uuid": prompt.uuid, "text": prompt.text, "taken": prompt.taken <= seq}
            for prompt in self._prompts
            if prompt.seq <= seq < prompt.ended
        ]
        known = {"result": self._result, "todos": self._todos, "asks": asks, "prompts": prompts}
        return {"model": model, "permission_mode": mode, **known}


def _start_of(body: Json) -> str:
    """The start of a user message."""
    message = body.get("message")
    content = message.get("content") if isinstance(message, dict) else ""
    if isinstance(content, list):
        content = "\n".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
    text = str(content or "")
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + " …"
