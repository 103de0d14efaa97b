"""The raw events of a message that streams, each once: after a reconnect the host tells them again from the beginning."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..session.client import Json

_TEXTS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}


@dataclass
class _Block:
    """What was passed on of one block, and how much of it has been told again."""

    chars: int = 0
    others: int = 0  # deltas that are no text
    stopped: bool = False
    chars_again: int = 0
    others_again: int = 0


@dataclass
class PartialEvents:
    """Remembers the message that streams."""

    _message: str = ""
    _blocks: dict[int, _Block] = field(default_factory=dict)

    def fresh(self, body: Json) -> Json | None:
        """What of a `stream_event` was not passed on before; None for nothing. Everything else passes as it is."""
        event = body.get("event")
        if body.get("type") != "stream_event" or not isinstance(event, dict):
            return body
        kind, index = event.get("type"), event.get("index")
        if kind == "message_start":
            return body if self._begins(event.get("message")) else None
        if kind == "message_stop":
            self._message = ""
            self._blocks.clear()
            return body
        if not self._message or not isinstance(index, int):
            return body
        if kind == "content_block_start":
            known = index in self._blocks
            self._blocks.setdefault(index, _Block())
            return None if known else body
        block = self._blocks.get(index)
        if block is None:
            return body
        if kind == "content_block_stop":
            stopped, block.stopped = block.stopped, True
            return None if stopped else body
        return _delta(block, body, event)

    def _begins(self, message: object) -> bool:
        """Whether a message starts that was not under way already."""
        identity = str(message.get("id") or "") if isinstance(message, dict) else ""
        if identity and identity == self._message:
            for block in self._blocks.values():
                block.chars_again = block.others_again = 0
            return False
        self._message = identity
        self._blocks.clear()
        return True


def _delta(block: _Block, body: Json, event: Json) -> Json | None:
    delta = event.get("delta")
    name = _TEXTS.get(str(delta.get("type")), "") if isinstance(delta, dict) else ""
    text = delta.get(name) if isinstance(delta, dict) and name else None
    if not isinstance(delta, dict) or not isinstance(text, str):
        block.others_again += 1
        if block.others_again <= block.others:
            return None
        block.others = block.others_again
        return body
    block.chars_again += len(text)
    new = block.chars_again - block.chars
    if new < 0 or (new == 0 and text):
        return None
    block.chars = block.chars_again
    return body if new >= len(text) else {**body, "event": {**event, "delta": {**delta, name: text[len(text) - new :]}}}
