"""The conversation as input items of Responses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..answers.events import dump
from ..dialect.content import (
    RequestTurn,
    blocks_of,
    data_url,
    file_name,
    is_media,
    left_out,
    plain_text,
    text_of,
    turns,
)
from ..dialect.dialect import ModelTarget
from ..dialect.names import ToolNames, short_id
from ..dialect.state import opened

Json = dict[str, Any]

MAX_ID = 64


class InputItems:
    """Writes the input of one request."""

    def __init__(self, target: ModelTarget, names: ToolNames) -> None:
        self._target = target
        self._names = names

    def of(self, asked: Json) -> list[Json]:
        """Return all items. Raise Untranslatable if the conversation cannot be translated."""
        items: list[Json] = []
        for turn in turns(asked):
            if turn.role == "system":
                part = {"type": "input_text", "text": text_of(turn.blocks)}
                items.append({"type": "message", "role": "developer", "content": [part]})
            else:
                items.extend(self._user(turn) if turn.role == "user" else self._assistant(turn))
        return items

    def _user(self, turn: RequestTurn) -> Iterator[Json]:
        for result in turn.of("tool_result"):
            blocks = blocks_of(result.get("content"))
            output: str | list[Json]
            if any(is_media(block) for block in blocks):
                output = [part for block in blocks for part in self._parts(block)]
                if result.get("is_error"):
                    output.insert(0, {"type": "input_text", "text": "Error:"})
            else:
                output = "\n\n".join(plain_text(block) for block in blocks)
                if result.get("is_error"):
                    output = f"Error: {output}"
            call_id = short_id(str(result.get("tool_use_id") or ""), MAX_ID)
            yield {"type": "function_call_output", "call_id": call_id, "output": output}
        parts = [part for block in turn.blocks if block.get("type") != "tool_result" for part in self._parts(block)]
        if parts:
            yield {"type": "message", "role": "user", "content": parts}

    def _parts(self, block: Json) -> list[Json]:
        if not is_media(block):
            return [{"type": "input_text", "text": plain_text(block)}]
        url, traits = data_url(block), self._target.traits
        if block.get("type") == "image" and traits.images and url:
            return [{"type": "input_image", "detail": "auto", "image_url": url}]
        if block.get("type") == "document" and traits.documents and url:
            if not url.startswith("data:"):
                return [{"type": "input_file", "file_url": url}]
            return [{"type": "input_file", "filename": file_name(block), "file_data": url}]
        return [{"type": "input_text", "text": left_out(block)}]

    def _assistant(self, turn: RequestTurn) -> Iterator[Json]:
        for block in turn.blocks:
            kind = block.get("type")
            if kind in ("thinking", "redacted_thinking"):
                state = opened(block, self._target.provider, self._target.model) or {}
                item = state.get("item")
                if isinstance(item, dict) and item.get("type") == "reasoning":  # a host could write another one
                    yield item
            elif kind == "text" and block.get("text"):
                part = {"type": "output_text", "text": block["text"], "annotations": []}
                yield {"type": "message", "role": "assistant", "content": [part]}
            elif kind == "tool_use":
                yield {
                    "type": "function_call",
                    "call_id": short_id(str(block.get("id")), MAX_ID),
                    "name": self._names.sent(str(block.get("name"))),
                    "arguments": dump(block.get("input") or {}),
                }
