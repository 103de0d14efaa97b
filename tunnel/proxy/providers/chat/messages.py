"""The messages of a conversation, as Chat Completions has them."""

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
from ..dialect.state import is_of, opened
from .rules import ChatRules

Json = dict[str, Any]

MAX_ID = 40
_UNSIGNED = "skip_thought_signature_validator"  # Gemini's own word for calls that another model has made


class ChatMessages:
    """Writes the messages of one request."""

    def __init__(self, rules: ChatRules, target: ModelTarget, names: ToolNames) -> None:
        self._rules = rules
        self._target = target
        self._names = names

    def of(self, asked: Json) -> list[Json]:
        """Return all messages. Raise Untranslatable if the conversation cannot be translated."""
        messages: list[Json] = []
        system = text_of(asked.get("system"))
        if system:
            messages.append({"role": "system", "content": system})
        for turn in turns(asked):
            if turn.role == "system":
                role = "system" if self._rules.system_inside else "user"
                messages.append({"role": role, "content": text_of(turn.blocks)})
            elif turn.role == "user":
                messages.extend(self._user(turn))
            elif (made := self._assistant(turn)) is not None:
                messages.append(made)
        return messages

    def _user(self, turn: RequestTurn) -> Iterator[Json]:
        """Yield the results of tools first, directly behind their calls, then one message with all the rest: images in
        results too, which a tool message cannot hold."""
        parts: list[Json] = []
        for result in turn.of("tool_result"):
            blocks = blocks_of(result.get("content"))
            text = "\n\n".join(plain_text(block) for block in blocks if not is_media(block))
            media = [block for block in blocks if is_media(block)]
            if media:
                text = f"{text}\n\n(see the files in the next message)".strip()
                parts += [part for block in media for part in self._media(block)]
            if result.get("is_error"):
                text = f"Error: {text}"
            call_id = short_id(str(result.get("tool_use_id") or ""), MAX_ID)
            yield {"role": "tool", "tool_call_id": call_id, "content": text}
        for block in turn.blocks:
            if is_media(block):
                parts += self._media(block)
            elif block.get("type") != "tool_result":
                parts.append({"type": "text", "text": plain_text(block)})
        if not parts:
            return
        if all(part["type"] == "text" for part in parts):  # templates of local models often want a plain text
            yield {"role": "user", "content": "\n\n".join(part["text"] for part in parts)}
        else:
            yield {"role": "user", "content": parts}

    def _media(self, block: Json) -> list[Json]:
        """Return the parts for an image or a document. What the model cannot see is named to it."""
        url, traits = data_url(block), self._target.traits
        if block.get("type") == "image" and traits.images and url:
            return [{"type": "image_url", "image_url": {"url": url}}]
        if block.get("type") == "document" and self._rules.files and traits.documents and url and url[:5] == "data:":
            return [{"type": "file", "file": {"filename": file_name(block), "file_data": url}}]
        return [{"type": "text", "text": left_out(block)}]

    def _assistant(self, turn: RequestTurn) -> Json | None:
        text = "".join(str(block.get("text") or "") for block in turn.of("text"))
        thoughts = "".join(
            str(block["thinking"])
            for block in turn.of("thinking")
            if block.get("thinking") and is_of(block, self._target.provider) and not self._is_call(block)
        )
        calls = self._calls(turn)
        if not text and not calls:
            return None
        message: Json = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = calls
        rules = self._rules
        if rules.thoughts_back and (thoughts or (calls and rules.thoughts_always)):
            message[rules.thoughts_back] = thoughts
        if rules.details and (details := self._details(turn)):
            message["reasoning_details"] = details
        return message

    def _calls(self, turn: RequestTurn) -> list[Json]:
        calls: list[Json] = []
        signature = ""
        for block in turn.blocks:
            if block.get("type") in ("thinking", "redacted_thinking"):
                signature = self._signature(block)
            elif block.get("type") == "tool_use":
                function = {
                    "name": self._names.sent(str(block.get("name"))),
                    "arguments": dump(block.get("input") or {}),
                }
                call = {"id": short_id(str(block.get("id")), MAX_ID), "type": "function", "function": function}
                if self._rules.gemini and not signature and not calls:
                    signature = _UNSIGNED
                if self._rules.gemini and signature:
                    call["extra_content"] = {"google": {"thought_signature": signature}}
                calls.append(call)
                signature = ""
        return calls

    def _state(self, block: Json) -> Json:
        return opened(block, self._target.provider, self._target.model) or {}

    def _signature(self, block: Json) -> str:
        return str(self._state(block).get("thought_signature") or "")

    def _is_call(self, block: Json) -> bool:
        return bool(self._signature(block))

    def _details(self, turn: RequestTurn) -> list[Any]:
        """Return what OpenRouter wants back, in the order in which it came."""
        found: list[Any] = []
        for block in turn.of("thinking", "redacted_thinking"):
            details = self._state(block).get("reasoning_details")
            found += details if isinstance(details, list) else []
        return found
