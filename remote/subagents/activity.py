"""What a sub-agent has done so far, counted while its records pass."""

from __future__ import annotations

from typing import Any, Callable

from ccb.tunnel.wire.messages import AssistantLine
from ccb.tunnel.wire.models import TOKENS, count
from ccb.tunnel.wire.records import Content, MessageRecord, ModelEndRecord, Record

from ..ports import Emitter

Json = dict[str, Any]

_MAX_SUBJECT = 100  # characters


class WatchedEmitter:
    """The emitter of one sub-agent. It passes everything on, counts, and calls `changed` after each change. `tokens` is
    the size of the newest request plus everything that the model has written."""

    def __init__(self, inner: Emitter, changed: Callable[[], None]) -> None:
        self.tool_uses = 0
        self.last_tool = ""
        self.doing = ""
        self.answer = ""
        """The text of the newest answer that has one."""
        self._inner = inner
        self._changed = changed
        self._context = self._output = 0

    @property
    def tokens(self) -> int:
        return self._context + self._output

    def emit(self, content: Content) -> Record:
        record = self._inner.emit(content)
        if isinstance(content, ModelEndRecord):
            self._context = sum(count(content.usage, name) for name in TOKENS[:3])
            self._output += count(content.usage, "output_tokens")
            self._changed()
        elif isinstance(content, MessageRecord) and isinstance(content.public, AssistantLine):
            self._said(content.public)
        return record

    def progress(self, key: str, body: Json) -> None:
        self._inner.progress(key, body)

    async def commit(self) -> None:
        await self._inner.commit()

    def _said(self, line: AssistantLine) -> None:
        if line.is_api_error:
            return
        for block in line.blocks:
            if block.get("type") == "tool_use":
                self.tool_uses += 1
                self.last_tool = str(block.get("name"))
                self.doing = f"{self.last_tool} {_subject(block.get('input'))}".strip()
                self._changed()
            elif block.get("type") == "text" and str(block.get("text")).strip():
                self.answer = str(block["text"])


def _subject(tool_input: object) -> str:
    """Return the first text in the input of a call, in one short line."""
    values = tool_input.values() if isinstance(tool_input, dict) else ()
    first = next((value for value in values if isinstance(value, str) and value.strip()), "")
    return " ".join(first.split())[:_MAX_SUBJECT]
