"""What a client has to know of events it is not sent: kept up to date record by record, never read back from the journal."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

Json = dict[str, Any]


class Picture:
    """The last result and list of todos, and the questions that are open, with the seq they were asked at."""

    def __init__(self) -> None:
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
        elif kind == "message":
            self._message(seq, body)

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
                    and block.get("name") == "TodoWrite"
                    and isinstance(block.get("input"), dict)
                ):
                    todos = block["input"].get("todos")
                    self._todos = todos if isinstance(todos, list) else self._todos

    def body(self, seq: int, *, model: str, mode: str) -> Json:
        """The body of a snapshot of everything up to `seq`."""
        asks = [body for asked, body in self._asks.values() if asked <= seq]
        return {"model": model, "permission_mode": mode, "result": self._result, "todos": self._todos, "asks": asks}
