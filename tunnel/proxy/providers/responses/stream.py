"""The stream of Responses as Anthropic events."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from ..answers.answer import WRONG, Answer, AnswerError
from ..answers.usage import read_usage
from ..dialect.dialect import ModelTarget
from ..dialect.errors import error_in_stream
from ..dialect.names import ToolNames
from ..dialect.state import sealed

Json = dict[str, Any]

_INCOMPLETE = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class ResponsesReader:
    """Reads one answer."""

    def __init__(
        self, target: ModelTarget, names: ToolNames, stops: tuple[str, ...] = (), *, fallback_id: str = ""
    ) -> None:
        self.answer = Answer(target.shown, fallback_id or f"msg_{uuid4().hex}", stops)
        self.answer.unsigned = sealed(target.provider, target.model, {})
        self._target = target
        self._names = names
        self._parts: dict[object, int] = {}
        self._spoken: set[object] = set()
        self._handlers = {
            "response.output_text.delta": self._text,
            "response.refusal.delta": self._text,
            "response.reasoning_summary_text.delta": self._thinking,
            "response.reasoning_text.delta": self._thinking,
            "response.reasoning_summary_part.added": self._part,
            "response.function_call_arguments.delta": self._arguments,
            "response.output_item.added": self._added,
            "response.output_item.done": self._item_done,
            "response.completed": self._completed,
            "response.incomplete": self._incomplete,
            "response.failed": self._failed,
            "error": self._failed,
        }

    def feed(self, data: bytes) -> None:
        """See StreamReader."""
        if data == b"[DONE]":
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            raise AnswerError(WRONG, f"{self._target.provider} sent an event that is not JSON") from None
        if not isinstance(event, dict):
            self._failed({"error": event})
            return
        kind = event.get("type")
        if not isinstance(kind, str):
            self._failed(event)
            return
        if not self.answer.begun and kind not in ("error", "response.failed"):
            response = event.get("response")
            self.answer.begin(response.get("id") if isinstance(response, dict) else "")
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(event)

    def end(self) -> None:
        """See StreamReader."""
        self.answer.finish()

    def _text(self, event: Json) -> None:
        piece = event.get("delta")
        if isinstance(piece, str):
            self._spoken.add(event.get("output_index"))
            self.answer.text(piece)

    def _thinking(self, event: Json) -> None:
        piece = event.get("delta")
        if isinstance(piece, str):
            self.answer.thinking(piece)

    def _part(self, event: Json) -> None:
        """A summary may have several parts: an empty line divides them."""
        item = event.get("output_index")
        self._parts[item] = self._parts.get(item, 0) + 1
        if self._parts[item] > 1:
            self.answer.thinking("\n\n")

    def _arguments(self, event: Json) -> None:
        piece = event.get("delta")
        if isinstance(piece, str):
            self.answer.arguments(event.get("output_index"), piece)

    def _added(self, event: Json) -> None:
        item = event.get("item")
        if isinstance(item, dict) and item.get("type") == "function_call":
            name = self._names.known(str(item.get("name") or ""))
            self.answer.call(event.get("output_index"), str(item.get("call_id") or ""), name)

    def _item_done(self, event: Json) -> None:
        item = event.get("item")
        if not isinstance(item, dict):
            return
        kind, key = item.get("type"), event.get("output_index")
        if kind == "function_call":
            if self.answer.knows_call(key) is None:
                self._added(event)
            arguments = item.get("arguments")
            self.answer.call_done(key, arguments if isinstance(arguments, str) else None)
        elif kind == "reasoning":
            # The item is taken from here: its encrypted content is whole only now.
            kept = {name: value for name, value in item.items() if name != "status"}
            self.answer.reasoning_state(sealed(self._target.provider, self._target.model, {"item": kept}))
        elif kind == "message" and key not in self._spoken:
            for part in item.get("content") or ():
                if isinstance(part, dict):
                    self.answer.text(str(part.get("text") or part.get("refusal") or ""))

    def _usage(self, response: Json) -> None:
        usage = response.get("usage")
        if isinstance(usage, dict):
            self.answer.usage = read_usage(usage, self.answer.usage)

    def _completed(self, event: Json) -> None:
        response = event.get("response")
        self._usage(response if isinstance(response, dict) else {})
        self.answer.stop("end_turn")
        self.answer.finish()

    def _incomplete(self, event: Json) -> None:
        response = event.get("response")
        response = response if isinstance(response, dict) else {}
        self._usage(response)
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        self.answer.stop(_INCOMPLETE.get(str(reason), "max_tokens"))
        self.answer.finish()

    def _failed(self, event: Json) -> None:
        response = event.get("response")
        if isinstance(response, dict):
            self._usage(response)
        failure = error_in_stream(event, self._target.provider)
        raise AnswerError(failure.kind, failure.message)
