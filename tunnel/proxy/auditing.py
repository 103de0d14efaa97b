"""Watch the calls of one auth proxy: what the models were asked, and which tools they wanted to run.

The watching costs no time before a byte: bodies are looked at when they have gone, answers while they pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

from ..providers.json_fields import object_in, objects_in, text_in
from ..wire.dataclass import dataclass

_MAX_INPUT = 256 * 1024
_MAX_OPEN = 256
_CALLS = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))


@dataclass(frozen=True)
class WantedCall:
    """A tool call in the answer of a model. `input_json` is the text of its input, as far as it has come. `there` says
    that the provider runs it: its own tools, and those of MCP servers that the request names."""

    tool_use_id: str
    name: str
    input_json: str
    there: bool = False


class Auditor:
    """Is told of the calls of one auth proxy, in the order in which they happen. This one notes nothing."""

    max_body = 0
    """Bytes of a request body that are kept until it is looked at."""

    def sent(self, call_id: str, body: bytes | None, digest: str) -> None:
        """The provider has the whole request of a call; `body` is None if it was too large to keep."""

    def wanted(self, call_id: str, wanted: WantedCall) -> None:
        """A model has begun to ask for a tool call: its input may still be empty."""

    def wanted_whole(self, call_id: str, wanted: WantedCall) -> None:
        """The input of a tool call is complete."""

    def recording(self, call_id: str) -> Callable[[bytes], None] | None:
        """Return what takes the bytes of the answer, None if they are not kept."""
        return None

    def others_drove(self) -> None:
        """Another client has driven the session meanwhile."""


class AuditedCalls:
    """The tool calls in the events of one answer."""

    def __init__(self, call_id: str, auditor: Auditor) -> None:
        self._call_id = call_id
        self._auditor = auditor
        self._open: dict[int, tuple[WantedCall, StringIO]] = {}

    @property
    def any_open(self) -> bool:
        """Whether the input of a tool call is under way."""
        return bool(self._open)

    def message(self, message: dict[str, Any]) -> None:
        """Read an answer in one piece."""
        for block in objects_in(message, "content"):
            if block.get("type") in _CALLS:
                call = replace(_call(block), input_json=json.dumps(block.get("input"))[:_MAX_INPUT])
                self._auditor.wanted(self._call_id, call)
                self._auditor.wanted_whole(self._call_id, call)

    def cut(self) -> None:
        """Tell of the calls whose input is not complete: no more events come."""
        for index in list(self._open):
            self._close(index)

    def event(self, event: dict[str, Any]) -> None:
        """Read one event."""
        index = event.get("index")
        if not isinstance(index, int):
            return
        kind, block = event.get("type"), object_in(event, "content_block")
        if kind == "content_block_start" and block.get("type") in _CALLS:
            if len(self._open) < _MAX_OPEN:
                whole = block.get("input")  # of some servers, without a delta
                call = replace(_call(block), input_json=json.dumps(whole)[:_MAX_INPUT] if whole else "")
                self._open[index] = (call, StringIO())
                self._auditor.wanted(self._call_id, call)
        elif kind == "content_block_delta" and index in self._open:
            text = self._open[index][1]
            text.write(text_in(object_in(event, "delta"), "partial_json")[: _MAX_INPUT - text.tell()])
        elif kind == "content_block_stop" and index in self._open:
            self._close(index)

    def _close(self, index: int) -> None:
        call, text = self._open.pop(index)
        self._auditor.wanted_whole(self._call_id, replace(call, input_json=text.getvalue() or call.input_json))


def _call(block: dict[str, Any]) -> WantedCall:
    return WantedCall(text_in(block, "id")[:200], text_in(block, "name")[:200], "", block.get("type") != "tool_use")
