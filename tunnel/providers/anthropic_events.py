"""An answer as Anthropic events.

A block opens with its first piece, and the block before it closes then. Pieces of several tool calls may come mixed:
only one call is open at a time, and the pieces of the others wait. Thinking and text that come while a call is open
wait as well, unless the input of the call is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring
from typing import Any

from ..wire.model_facts import ESTIMATED, count
from .json_fields import Json, dump, object_in

MAX_ANSWER = 32 * 1024 * 1024  # characters; a server that sends more is cut off
MAX_CALLS = 1_000  # of an answer, and characters of an id or a name

_BYTES_PER_TOKEN, _CALL_BYTES = 4, 80  # of text, and of a call beside its input

WRONG = "invalid_request_error"  # of an answer that is not understood. The worker does not try again: each try is paid


class AnswerError(Exception):
    """The provider's stream says that it failed, or is not understood. `kind` is an error type of the Messages API."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass
class _Call:
    """A tool call. `looked_at` is how many pieces of its input there were when it was last tried as JSON."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    state: str = ""
    done: bool = False
    closed: bool = False
    looked_at: int = -1

    def is_whole_now(self) -> bool:
        if not self.pieces or self.looked_at == len(self.pieces) or not self.pieces[-1].rstrip().endswith("}"):
            return False
        self.looked_at = len(self.pieces)
        return _is_object(self.pieces)


class _BlockWriter:
    """Writes the events of an answer. At most one block is open, of the type `open`. `state` becomes the signature of
    the thinking that is open, and `unsigned` that of thinking without one."""

    def __init__(self, unsigned: str) -> None:
        self.open = ""
        self.state = ""
        self.index = -1
        self.out: list[str] = []
        self._unsigned = unsigned

    def start(self, block: Json) -> None:
        """Close the open block, and begin another one."""
        self.close()
        self.index += 1
        self.open = block["type"]
        self.out.append(event("content_block_start", {"index": self.index, "content_block": block}))

    def delta(self, kind: str, field: str, text: str) -> None:
        """Write a piece of the open block: `kind` is its type, `field` the name of what it holds."""
        self.out.append(
            f'event: content_block_delta\ndata: {{"type":"content_block_delta","index":{self.index},'
            f'"delta":{{"type":"{kind}","{field}":{encode_basestring(text)}}}}}\n\n'
        )

    def close(self) -> None:
        """End the open block, if there is one."""
        if not self.open:
            return
        if self.open == "thinking":
            sealed, self.state = self.state or self._unsigned, ""
            if sealed:
                self.delta("signature_delta", "signature", sealed)
        self.out.append(event("content_block_stop", {"index": self.index}))
        self.open = ""


class AnswerBuilder:
    """Collects the bytes of one answer; `take` returns what is new. `model` is the name that the worker asked for.
    `unsigned` is the signature of thinking for which nothing has to go back."""

    def __init__(self, model: str, fallback_id: str, unsigned: str = "") -> None:
        self.model = model
        self.usage = TokenUsage()
        self.prompt = 0  # the tokens of the request, estimated: for a server that does not tell them
        self.over = self.begun = False
        self.stop_reason = ""
        self._id = fallback_id
        self._writer = _BlockWriter(unsigned)
        self._size = 0
        self._said = 0  # bytes that the model has made
        self._calls: dict[object, _Call] = {}
        self._current: _Call | None = None
        self._held: list[tuple[str, str]] = []

    def take(self) -> bytes:
        text, self._writer.out = "".join(self._writer.out), []
        return text.encode("utf-8", "replace")  # some servers send half of a surrogate pair

    def begin(self, upstream_id: object = "") -> None:
        """The provider has begun to answer. Later calls do nothing."""
        if self.begun:
            return
        self.begun = True
        if isinstance(upstream_id, str) and upstream_id:
            kept = "".join(each for each in upstream_id if each.isascii() and (each.isalnum() or each in "_-"))[:120]
            self._id = kept if kept.startswith("msg_") else f"msg_{kept}"
        message: Json = {"id": self._id, "type": "message", "role": "assistant", "model": self.model, "content": []}
        message |= {"stop_reason": None, "stop_sequence": None, "usage": TokenUsage().to_json()}
        self._writer.out.append(event("message_start", {"message": message}))

    def text(self, piece: str) -> None:
        self._count(piece)
        self._add("text", piece)

    def thinking(self, piece: str) -> None:
        self._count(piece)
        self._add("thinking", piece)

    def reasoning_state(self, sealed: str) -> None:
        """`sealed` must go back with the thinking that is open, or with the next block: in its signature."""
        if self.stop_reason:
            return
        self._grow(sealed)
        if self._current is not None:
            self._held.append(("state", sealed))
        elif self._writer.open == "thinking":
            self._writer.state = sealed
            self._writer.close()
        else:
            self._writer.start({"type": "redacted_thinking", "data": sealed})
            self._writer.close()

    def call(self, key: object, call_id: str, name: str, *, state: str = "") -> None:
        """A tool call, or more about that of `key`. Its block opens once its name is known; `state` goes back with
        it."""
        if self.stop_reason:
            return
        call = self._calls.get(key)
        if call is None:
            if len(self._calls) >= MAX_CALLS:
                raise AnswerError(WRONG, f"the answer has more than {MAX_CALLS} tool calls")
            call = self._calls[key] = _Call()
            self._said += _CALL_BYTES
        if state and not call.state:
            self._grow(state)
        call.id = call.id or call_id[:MAX_CALLS]
        call.name = call.name or name[:MAX_CALLS]
        call.state = call.state or state
        self._advance()

    def is_whole(self, key: object) -> bool:
        """Return whether the input of a call is a whole JSON object."""
        call = self._calls.get(key)
        return call is not None and (call.closed or _is_object(call.pieces))

    def arguments(self, key: object, piece: str) -> None:
        call = self._calls.get(key)
        if self.stop_reason or call is None or call.closed or not piece:
            return
        self._count(piece)
        self._grow(piece)
        call.pieces.append(piece)
        if call is self._current:
            self._writer.delta("input_json_delta", "partial_json", piece)
        else:
            self._advance()

    def call_done(self, key: object, whole: str) -> None:
        """The input of a call is complete. `whole` is all of it, for a server that has not sent it in pieces."""
        call = self._calls.get(key)
        if call is None or call.closed:
            return
        if not call.pieces:
            self.arguments(key, whole)
        call.done = True
        self._advance()

    def stop(self, reason: str) -> None:
        """The model has stopped: close what is open. What follows is counted only. `finish` ends the answer."""
        if self.stop_reason:
            return
        cut = reason in ("max_tokens", "model_context_window_exceeded", "refusal")
        for call in self._calls.values():
            if call.closed:
                continue
            if call is not self._current:
                if not call.name:
                    raise AnswerError(WRONG, "the provider sent a tool call without a name")
                self._open_call(call)
            if not any(piece.strip() for piece in call.pieces):
                # "{" of a cut call: it must not run without its input
                self._writer.delta("input_json_delta", "partial_json", "{" if cut else "{}")
            self._close_call(call)
        self._release()
        self._writer.close()
        if self._calls and reason == "end_turn":
            reason = "tool_use"
        elif not self._calls and reason == "tool_use":
            reason = "end_turn"
        self.stop_reason = reason

    def finish(self) -> None:
        """End the answer. Raise AnswerError if the model has not stopped."""
        if self.over:
            return
        if not self.stop_reason:
            raise AnswerError("api_error", "the provider ended the stream in the middle of an answer")
        self.over = True
        reason = {"stop_reason": self.stop_reason, "stop_sequence": None}
        self._writer.out.append(
            event("message_delta", {"delta": reason, "usage": self._used()}) + event("message_stop", {})
        )

    def fail(self, kind: str, message: str) -> None:
        """End the answer with an error. The auth proxy counts what was used: it is paid for all the same."""
        if not self.over:
            self.over = True
            told: Json = {"error": {"type": kind, "message": message}}
            self._writer.out.append(event("error", told | ({"usage": self._used()} if self._said else {})))

    def _used(self) -> Json:
        return self.usage.completed(self.prompt, max(1, self._said // _BYTES_PER_TOKEN)).to_json()

    def _count(self, piece: str) -> None:
        self._said += len(piece.encode("utf-8", "replace"))

    def _grow(self, piece: str) -> None:
        self._size += len(piece)
        if self._size > MAX_ANSWER:
            raise AnswerError(WRONG, f"the answer is longer than {MAX_ANSWER} characters")

    def _add(self, kind: str, piece: str) -> None:
        if not piece or self.stop_reason:
            return
        if self._current is not None:
            self._advance(make_room=True)
        self._grow(piece)
        if self._current is not None:
            self._held.append((kind, piece))
            return
        self._release()
        if self._writer.open != kind:
            self._writer.start({"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {}))
        self._writer.delta(f"{kind}_delta", kind, piece)

    def _release(self) -> None:
        """Send what has waited for the calls before it."""
        held, self._held = self._held, []
        for kind, piece in held:
            if kind == "state":
                self.reasoning_state(piece)
            else:
                self._add(kind, piece)

    def _advance(self, *, make_room: bool = False) -> None:
        """Open the next call if none is, and close the open one if others wait for it."""
        while True:
            call = self._current
            if call is None:
                call = next((each for each in self._calls.values() if not each.closed), None)
                if call is None or not call.name:
                    return
                self._open_call(call)
            others = make_room or any(each is not call and not each.closed for each in self._calls.values())
            if not (call.done or (others and call.is_whole_now())):
                return
            self._close_call(call)

    def _open_call(self, call: _Call) -> None:
        if call.state:
            self._writer.start({"type": "thinking", "thinking": "", "signature": ""})
            self._writer.state = call.state
        call.id = call.id or f"call_{self._id.removeprefix('msg_')[:40]}_{self._writer.index + 1}"
        self._current = call
        self._writer.start({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
        for piece in call.pieces:
            self._writer.delta("input_json_delta", "partial_json", piece)

    def _close_call(self, call: _Call) -> None:
        self._writer.close()
        call.closed, self._current = True, None


def _is_object(pieces: list[str]) -> bool:
    try:
        return isinstance(json.loads("".join(pieces)), dict)
    except (ValueError, RecursionError):
        return False


def event(kind: str, fields: Json) -> str:
    """Return one event of the stream."""
    return f"event: {kind}\ndata: {dump({'type': kind, **fields})}\n\n"


PING = b'event: ping\ndata: {"type":"ping"}\n\n'  # a sign of life while a model thinks in silence


@dataclass(frozen=True)
class TokenUsage:
    """`prompt` and `output` are totals: what was read from the cache or written to it is inside `prompt`, reasoning
    inside `output`. `total` is what the provider calls so. `estimated`: not all of it comes from the provider."""

    prompt: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    total: int = 0
    estimated: bool = False

    def to_json(self) -> Json:
        """Return the `usage` object of the Messages API, which counts each input token once."""
        usage: Json = {
            "input_tokens": self.prompt - self.cache_read - self.cache_write,
            "cache_creation_input_tokens": self.cache_write,
            "cache_read_input_tokens": self.cache_read,
            "output_tokens": self.output,
        }
        if self.reasoning:
            usage["output_tokens_details"] = {"thinking_tokens": self.reasoning}
        return usage | ({ESTIMATED: True} if self.estimated else {})

    def completed(self, prompt: int, output: int) -> TokenUsage:
        """Return the usage with what the provider has not told. `prompt` and `output` are estimates."""
        if self.total and not (self.prompt or self.output):
            output = min(output, self.total)
            return replace(self, prompt=self.total - output, output=output, estimated=True)
        made = self
        if not made.prompt:
            told = made.total - made.output
            made = replace(made, prompt=max(told, 0) or prompt, estimated=told <= 0)
        if not made.output:
            made = replace(made, output=output, estimated=True)
        return made


def read_usage(usage: Mapping[str, Any], before: TokenUsage) -> TokenUsage:
    """Return the counts in a `usage` of Chat Completions or Responses. What it does not tell counts as `before`."""
    prompt = _count(usage, "prompt_tokens", "input_tokens") or before.prompt
    output = _count(usage, "completion_tokens", "output_tokens") or before.output
    read_in = object_in(usage, "prompt_tokens_details") or object_in(usage, "input_tokens_details")
    details = object_in(usage, "completion_tokens_details") or object_in(usage, "output_tokens_details")
    total = _count(usage, "total_tokens") or before.total
    read = _count(read_in, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens") or before.cache_read
    written = _count(read_in, "cache_write_tokens") or before.cache_write
    if not prompt or prompt < read + written <= total - output - prompt:
        prompt += read + written  # this server does not count them as a part of the prompt
    read = min(read, prompt)
    written = min(written, prompt - read)
    if total > prompt + output and prompt:
        output = total - prompt  # Gemini and xAI leave reasoning out of the completion, and bill it
    reasoning = min(_count(details, "reasoning_tokens") or before.reasoning, output)
    return TokenUsage(prompt, read, written, output, reasoning, total)


def _count(usage: Mapping[str, Any], *names: str) -> int:
    """Return the first of these counts that tells something."""
    return next((found for name in names if (found := count(usage, name))), 0)


def whole_message(stream: bytes) -> tuple[Json | None, Json | None]:
    """Return the message of a stream of Anthropic events, and the error that ended it: one of the two."""
    message: Json = {}
    blocks: list[Json] = []
    inputs: dict[int, list[str]] = {}
    for line in stream.split(b"\n"):
        if not line.startswith(b"data: "):
            continue
        event = json.loads(line[6:])
        kind = event["type"]
        if kind == "error":
            return None, event
        if kind == "message_start":
            message = event["message"]
        elif kind == "content_block_start":
            blocks.append(event["content_block"])
        elif kind == "message_delta":
            message |= event["delta"]
            message["usage"] = {**message["usage"], **event["usage"]}
        elif kind == "content_block_delta":
            (_, (name, value)) = event["delta"].items()  # its type first
            if name == "partial_json":
                inputs.setdefault(event["index"], []).append(value)
            else:
                blocks[event["index"]][name] += value
    for index, parts in inputs.items():
        text = "".join(parts)
        # A text that is no object stays one, so that nobody runs the call.
        blocks[index]["input"] = json.loads(text) if _is_object(parts) else text
    return {**message, "content": blocks}, None
