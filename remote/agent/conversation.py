"""The conversation as the Messages API sees it: a projection of the journal, never a second truth.

The live loop and a restart apply the same records with the same code, so both arrive at the same bytes. Records:

- `message`: public objects. `assistant` lines with one message.id make up one assistant message; `user` lines carry tool
  results and notes. Replays, API-error messages and everything else are not part of the conversation.
- `input` {id, body}: remembered until a `prompt` uses it.
- `prompt` {context: blocks, items: [{input: id} | {content: blocks}]}: what the person said, as it entered the history.
- `withdrawn` {message_id}: an answer that was cut and asked for again; its lines do not count.
- `model_end`: the answer is complete; a later one is another, whatever its message.id (some providers repeat them).
- `model` {model}: the model changed; thinking belongs to the model that thought it and is dropped.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Callable

from ccb.tunnel.wire.ndjson import dump, to_bytes

Json = dict[str, Any]

_log = logging.getLogger(__name__)
_NEWEST = 4  # messages that stay as they came: results still join them, and an answer may be withdrawn
_THINKING = ("thinking", "redacted_thinking")


class HistoryMessage:
    """One message of the history. Its encoded bytes are kept until it changes, and only the newest ones change: of the others
    the bytes are all that is kept (`pack`), which is a small part of what the blocks take as objects."""

    __slots__ = ("_blocks", "_encoded", "_origins", "role")

    def __init__(self, role: str) -> None:
        self.role = role
        self._blocks: list[Json] | None = []
        self._origins: list[int] = []
        self._encoded: bytes | None = None

    @property
    def packed(self) -> bool:
        return self._blocks is None

    @property
    def blocks(self) -> list[Json]:
        """The content, not to be changed."""
        if self._blocks is None:
            blocks: list[Json] = json.loads(self.encoded())["content"]
            return blocks
        return self._blocks

    @property
    def origins(self) -> list[int]:
        """The number of the answer each block came with, 0 in user messages and where nobody can withdraw it any more."""
        return self._origins if self._blocks is not None else [0] * len(self.blocks)

    def pack(self) -> None:
        """Keep the encoded bytes only."""
        self.encoded()
        self._blocks, self._origins = None, []

    def put(self, block: Json, origin: int = 0, at: int | None = None) -> None:
        blocks, origins = self.blocks, self.origins
        where = len(blocks) if at is None else at
        blocks.insert(where, block)
        origins.insert(where, origin)
        self._blocks, self._origins, self._encoded = blocks, origins, None

    def keep(self, wanted: Callable[[Json, int], bool]) -> None:
        """Drop the blocks that are not wanted."""
        blocks = self.blocks
        kept = [(b, o) for b, o in zip(blocks, self.origins) if wanted(b, o)]
        if len(kept) != len(blocks):
            self._blocks = [b for b, _ in kept]
            self._origins = [o for _, o in kept]
            self._encoded = None

    def api(self) -> Json:
        """The message in the shape of the Messages API."""
        return {"role": self.role, "content": self.blocks}

    def encoded(self) -> bytes:
        if self._encoded is None:
            self._encoded = to_bytes(dump(self.api()))
        return self._encoded

    def encoded_with_cache_mark(self) -> bytes:
        """The same with a cache_control mark on the last block; the history itself stays without."""
        *first, last = self.blocks
        marked = {**last, "cache_control": {"type": "ephemeral"}}
        return to_bytes(dump({"role": self.role, "content": [*first, marked]}))


@dataclass
class _Answer:
    """The answer that is coming in, from its first block to its `model_end` or to what the person says next."""

    message_id: str
    number: int
    message: HistoryMessage


class Conversation:
    """The history; grows at its end."""

    def __init__(self) -> None:
        self.messages: list[HistoryMessage] = []
        self.model: str | None = None  # the last one chosen in mid-session
        self._open: dict[str, HistoryMessage] = {}  # tool_use id -> the assistant message that holds it
        self._used_ids: set[str] = set()
        self._inputs: dict[str, list[Json]] = {}
        self._answer: _Answer | None = None
        self._answers = 0

    @staticmethod
    def from_events(events: Iterable[tuple[str, Json]]) -> Conversation:
        """Rebuild from journal records (kind, body). Tool uses may be open after it: see `close_open_tool_uses`."""
        conversation = Conversation()
        for kind, body in events:
            conversation.apply(kind, body)
        return conversation

    @property
    def open_tool_uses(self) -> list[str]:
        """Ids of tool_uses without a result, in order."""
        return list(self._open)

    def is_used(self, tool_use_id: str) -> bool:
        """Whether a tool_use of this id is or was in the history."""
        return tool_use_id in self._used_ids

    def apply(self, kind: str, body: Json) -> None:
        """Take one journal record. What cannot belong to a valid history (a result without its call) is left out."""
        if kind == "message":
            self._message(body)
        elif kind == "input":
            if body.get("body", {}).get("type") == "user":
                self.know_input(str(body.get("id")), prompt_blocks(body["body"]))
        elif kind == "prompt":
            self._prompt(body)
        elif kind == "withdrawn":
            self._withdraw(str(body.get("message_id")))
        elif kind == "model_end":
            self._answer = None
        elif kind == "model":
            self.model = str(body.get("model"))
            self._strip_thinking()

    def know_input(self, input_id: str, blocks: list[Json]) -> None:
        """Remember an input until the `prompt` record that uses it."""
        self._inputs[input_id] = blocks

    def seal(self) -> None:
        """Make the history fit to be sent: the API takes no assistant message that ends in thinking."""
        changeable = [message for message in self.messages if not message.packed]
        for message in changeable:
            if message.role == "assistant":
                self._trim(message)
        for message in changeable[:-_NEWEST]:
            message.pack()

    def _message(self, body: Json) -> None:
        message = body.get("message")
        if not isinstance(message, dict):
            return
        if body.get("type") == "assistant" and not body.get("is_api_error_message"):
            self._assistant(str(message.get("id") or ""), _blocks(message.get("content")))
        elif body.get("type") == "user" and not body.get("isReplay"):
            self._user(_blocks(message.get("content")))

    def _assistant(self, message_id: str, blocks: list[Json]) -> None:
        for block in filter(_is_sendable, blocks):
            tool_use_id = str(block.get("id")) if block.get("type") == "tool_use" else ""
            if tool_use_id in self._used_ids:
                continue
            answer = self._answer_of(message_id)
            answer.message.put(block, answer.number)
            if tool_use_id:
                self._open[tool_use_id] = answer.message
                self._used_ids.add(tool_use_id)

    def _answer_of(self, message_id: str) -> _Answer:
        """The answer this fragment belongs to: a result of an early tool may already stand behind its message."""
        if self._answer is None or self._answer.message_id != message_id:
            if not self.messages:
                self._user_message().put({"type": "text", "text": "(earlier messages are not available)"})
            if self.messages[-1].role != "assistant":
                self.messages.append(HistoryMessage("assistant"))
            self._answers += 1
            self._answer = _Answer(message_id, self._answers, self.messages[-1])
        return self._answer

    def _user_message(self) -> HistoryMessage:
        if self.messages and self.messages[-1].role == "user":
            return self.messages[-1]
        self.messages.append(HistoryMessage("user"))
        return self.messages[-1]

    def _user(self, blocks: list[Json]) -> None:
        for block in filter(_is_sendable, blocks):
            if block.get("type") == "tool_result":
                self._result(block)
            else:
                self._answer = None
                self._user_message().put(block)

    def _result(self, block: Json) -> None:
        owner = self._open.pop(str(block.get("tool_use_id")), None)
        if owner is None:
            return
        after = self._place(owner) + 1
        if after == len(self.messages) or self.messages[after].role != "user":
            self.messages.insert(after, HistoryMessage("user"))
        user = self.messages[after]
        results = sum(1 for b in user.blocks if b.get("type") == "tool_result")  # they come first, the API insists
        user.put(block, at=results)

    def _place(self, message: HistoryMessage) -> int:
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index] is message:
                return index
        raise AssertionError("an open tool_use outside the history")

    def _prompt(self, body: Json) -> None:
        blocks = _blocks(body.get("context"))
        for item in body.get("items") or []:
            if "input" in item:
                known = self._inputs.pop(str(item["input"]), None)
                if known is None:
                    _log.warning("a prompt names input %s, which the journal does not hold", item["input"])
                blocks += known or []
            else:
                blocks += _blocks(item.get("content"))
        sendable = [block for block in blocks if _is_sendable(block)]
        self._user(sendable or [{"type": "text", "text": "(empty message)"}])

    def _withdraw(self, message_id: str) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.message_id != message_id:
            return
        gone = {
            str(block["id"])
            for block, origin in zip(answer.message.blocks, answer.message.origins)
            if origin == answer.number and block.get("type") == "tool_use"
        }
        answer.message.keep(lambda _, origin: origin != answer.number)
        for message in self.messages[-2:]:
            if message.role == "user":
                message.keep(lambda block, _: block.get("tool_use_id") not in gone)
        for tool_use_id in gone & set(self._open):
            del self._open[tool_use_id]
        self._drop_empty()

    def _strip_thinking(self) -> None:
        for message in self.messages:
            message.keep(lambda block, _: block.get("type") not in _THINKING)
        self._drop_empty()

    def _trim(self, message: HistoryMessage) -> None:
        end = len(message.blocks)
        while end and message.blocks[end - 1].get("type") in _THINKING:
            end -= 1
        if end < len(message.blocks):
            wanted = {id(block) for block in message.blocks[:end]}
            message.keep(lambda block, _: id(block) in wanted)
            self._drop_empty()

    def _drop_empty(self) -> None:
        """Remove emptied messages and join neighbours of one role."""
        kept: list[HistoryMessage] = []
        for message in self.messages:
            if not message.blocks:
                continue
            if kept and kept[-1].role == message.role:
                for block, origin in zip(message.blocks, message.origins):
                    kept[-1].put(block, origin)
                for tool_use_id, owner in self._open.items():
                    if owner is message:
                        self._open[tool_use_id] = kept[-1]
                if self._answer is not None and self._answer.message is message:
                    self._answer.message = kept[-1]
            else:
                kept.append(message)
        self.messages = kept
        if self._answer is not None and not any(self._answer.message is message for message in kept):
            self._answer = None


def close_open_tool_uses(conversation: Conversation, why: str | Callable[[str], str]) -> list[Json]:
    """THE way to close tool_uses that have no result: on interrupt, on a failed call, after a crash, on load. Each gets an
    is_error tool_result saying `why` (or `why(tool_use_id)`). They are applied here; the returned public messages are
    for the caller to emit, so that the journal and every client learn it too."""
    bodies = []
    for tool_use_id in conversation.open_tool_uses:
        body = tool_result_message(tool_use_id, why if isinstance(why, str) else why(tool_use_id), is_error=True)
        conversation.apply("message", body)
        bodies.append(body)
    return bodies


def tool_result_message(
    tool_use_id: str, content: str | list[Json], *, is_error: bool, structured: object = None
) -> Json:
    """The public user message with one tool_result."""
    block: Json = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
    if is_error:
        block["is_error"] = True
        if structured is None:
            structured = f"Error: {content}" if isinstance(content, str) else "Error"
    return {
        "type": "user",
        "message": {"role": "user", "content": [block]},
        "parent_tool_use_id": None,
        "tool_use_result": content if structured is None else structured,
    }


def prompt_blocks(body: Json) -> list[Json]:
    """The content blocks of a public user message from a client."""
    message = body.get("message")
    return _blocks(message.get("content")) if isinstance(message, dict) else []


def _blocks(content: object) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _is_sendable(block: Json) -> bool:
    """The API refuses blank text and thinking without its signature."""
    kind = block.get("type")
    if kind == "text":
        return bool(str(block.get("text") or "").strip())
    if kind == "thinking":
        return bool(block.get("signature"))
    return True
