"""Streaming events of a message, each printed once: after a reconnect the host sends them again from the beginning."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.stream_events import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    MessageStart,
    MessageStop,
    parse_stream_event,
    with_text,
)

if TYPE_CHECKING:
    from ..session.client import Json


_MAX_BLOCKS = 10_000
"""Content blocks of a message that are remembered. What comes beyond them is printed again after a reconnect."""


@dataclass
class _PrintedBlock:
    """How much of a content block was printed, and how much of it the host has sent again since the last reconnect."""

    chars: int = 0
    other_deltas: int = 0  # deltas without text
    stopped: bool = False
    chars_again: int = 0
    other_deltas_again: int = 0


@dataclass
class PartialEvents:
    """Knows what was printed of the message that is being streamed."""

    _message_id: str = ""
    _blocks: dict[int, _PrintedBlock] = field(default_factory=dict)

    def new_part(self, message: Json) -> Json | None:
        """Return the part of a `stream_event` message that was not printed before, or None. Messages of other types and
        events of unknown types are returned unchanged."""
        event = message.get("event")
        if message.get("type") != "stream_event" or not isinstance(event, dict):
            return message
        parsed = parse_stream_event(event)
        if isinstance(parsed, MessageStart):
            return message if self._message_started(parsed.message_id) else None
        if isinstance(parsed, MessageStop):
            self._message_id = ""
            self._blocks.clear()
            return message
        if parsed is None or not self._message_id:
            return message
        block = self._blocks.get(parsed.index)
        if isinstance(parsed, ContentBlockStart):
            if len(self._blocks) < _MAX_BLOCKS:
                self._blocks.setdefault(parsed.index, _PrintedBlock())
            return message if block is None else None
        if block is None:
            return message
        if isinstance(parsed, ContentBlockStop):
            stopped, block.stopped = block.stopped, True
            return None if stopped else message
        return _new_part_of_delta(block, message, parsed)

    def _message_started(self, message_id: str) -> bool:
        """Return whether this is another message than the one that is being streamed."""
        if message_id and message_id == self._message_id:
            for block in self._blocks.values():
                block.chars_again = block.other_deltas_again = 0
            return False
        self._message_id = message_id
        self._blocks.clear()
        return True


def _new_part_of_delta(block: _PrintedBlock, message: Json, delta: ContentBlockDelta) -> Json | None:
    if not delta.field:
        block.other_deltas_again += 1
        if block.other_deltas_again <= block.other_deltas:
            return None
        block.other_deltas = block.other_deltas_again
        return message
    block.chars_again += len(delta.text)
    new = block.chars_again - block.chars
    if new < 0 or (new == 0 and delta.text):
        return None
    block.chars = block.chars_again
    return message if new >= len(delta.text) else with_text(message, delta, delta.text[len(delta.text) - new :])
