"""Each part of a streaming message once, over lost connections."""

from __future__ import annotations

from collections import Counter

from ccb.tunnel.wire import messages
from ccb.tunnel.wire.frames import Json

_MAX_PARTS = 20_000
"""Parts of a message (blocks begun, ended, grown) that are remembered. Others come again after a reconnect."""


class PartialEvents:
    """Passes each part of a message on once. After a reconnect the host sends the message again from its start, with
    the deltas of a block joined."""

    def __init__(self) -> None:
        self.message_id = ""
        self._passed: Counter[tuple[int, str]] = Counter()  # by block and kind of event: characters, or events
        self._again: Counter[tuple[int, str]] = Counter()  # the same since the message was begun last

    @property
    def begun(self) -> bool:
        return bool(self._passed)

    def new_part(self, message: Json) -> Json | None:
        """Return the part of a `stream_event` that was not printed before, or None; other messages unchanged."""
        event = message.get("event") if message.get("type") == "stream_event" else None
        parsed = messages.parse_stream_event(event) if isinstance(event, dict) else None
        if isinstance(parsed, messages.MessageStart):
            return None if self.begins_again(parsed.message_id) else message
        if parsed is None or isinstance(parsed, messages.MessageStop) or not self.message_id:
            return message
        if not isinstance(parsed, messages.ContentBlockDelta) or not parsed.field:
            return message if self._new((parsed.index, type(parsed).__name__), 1) > 0 else None
        size = len(parsed.text)
        new = self._new((parsed.index, parsed.field), size)
        if new == size:
            return message
        return messages.with_text(message, parsed, parsed.text[size - new :]) if new > 0 else None

    def begins_again(self, message_id: str) -> bool:
        """Note that a message begins. Return whether it has begun before, and no other one since."""
        again = bool(message_id) and message_id == self.message_id
        self.message_id = message_id
        self._again.clear()
        if not again:
            self._passed.clear()
        return again

    def finished(self, index: int, field: str, text: str) -> str:
        """Return what was not passed on before of the whole text of a block."""
        rest = text[self._passed[index, field] :]
        if len(self._passed) < _MAX_PARTS:
            self._passed[index, field] += len(rest)
        return rest

    def _new(self, part: tuple[int, str], size: int) -> int:
        """Return how much of a piece of this size was not passed on before: nothing of it if that is not above 0."""
        if part not in self._passed and len(self._passed) >= _MAX_PARTS:
            return size
        self._again[part] += size
        new = self._again[part] - self._passed[part]
        self._passed[part] = max(self._passed[part], self._again[part])
        return new
