"""Reads answers in other APIs than Messages on their way through the auth proxy, for the meter and the auditor."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import StringIO
from typing import NamedTuple

from ..providers.anthropic_events import TokenUsage, read_usage
from ..providers.foreign_api import CHAT, GEMINI, RESPONSES, ForeignApi
from ..providers.json_fields import Json, object_in, objects_in, text_in
from ..wire.model_facts import count, is_count
from .answer_reader import (
    MAX_INPUT,
    MAX_OPEN,
    UNREADABLE,
    AnswerReader,
    Auditor,
    TellingEvents,
    WantedCall,
    json_object,
)
from .metering import CallMeter

_MAX_EVENT = 16 * 1024 * 1024  # bytes: the last event of Responses repeats the whole answer
_UNREADABLE = UNREADABLE["usage"]
_OPENAI_COUNTS = (
    *("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens"),
    *("prompt_cache_hit_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens"),
)
_OPENAI_DETAILS = (
    *("prompt_tokens_details", "completion_tokens_details", "input_tokens_details", "output_tokens_details"),
)
_GEMINI_COUNTS = (
    *("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
    *("toolUsePromptTokenCount", "totalTokenCount"),
)


class Told(NamedTuple):
    """What an event, or an answer in one piece, tells. `usage` is in the words of the Messages API, None if it is not
    there, a text if it cannot be read. `ended`: the model has finished. `calls` have a key if more may follow."""

    model: str
    usage: object
    ended: bool
    calls: list[tuple[int | None, WantedCall]]


class ForeignAnswerReader(AnswerReader):
    """See `AnswerReader`. What a meter takes are the words of the Messages API."""

    def __init__(
        self, api: ForeignApi, call_id: str, meter: CallMeter, auditor: Auditor, headers: Mapping[str, str]
    ) -> None:
        super().__init__(call_id, meter, auditor, headers)
        words, self._told = _READERS[api.name]
        self._events = TellingEvents(words, _MAX_EVENT)
        self._searches = 0
        meter.event({"type": "message_start"})  # until it has stopped, it was cut

    def _read(self, chunk: bytes) -> None:
        for text in self._events.take(chunk):
            if text.strip() != b"[DONE]":
                self._take_whole(json_object(text))

    def _take_whole(self, message: Json) -> None:
        """Take an event or an answer in one piece."""
        if message == UNREADABLE:
            self._meter.event(message)
            return
        told = self._told(message)
        failed = message.get("error") or object_in(message, "response").get("error")
        if failed or message.get("type") == "error":
            self._meter.event({"type": "error"})
        self._searches += sum(call.there for _, call in told.calls)
        usage = told.usage
        if isinstance(usage, dict) and self._searches:
            usage = {**usage, "server_tool_use": {"web_search_requests": self._searches}}
        delta = {"stop_reason": "end_turn"} if told.ended else {}
        self._meter.event({"type": "message_delta", "model": told.model, "delta": delta, "usage": usage})
        for key, call in told.calls:
            if key is None:
                self._note_whole(call)
            else:
                self._note_piece(key, call)
        for open_key in list(self._open) if told.ended else ():
            self._close_call(open_key)

    def _note_piece(self, key: int, piece: WantedCall) -> None:
        known = self._open.get(key)
        if known is not None and piece.tool_use_id not in ("", known[0].tool_use_id):
            self._close_call(key)  # some servers give all calls one index
            known = None
        if known is None and len(self._open) >= MAX_OPEN:
            return
        if known is None:
            known = self._open[key] = replace(piece, input_json=""), StringIO()
            self._auditor.wanted(self._call_id, known[0])
        known[1].write(piece.input_json[: MAX_INPUT - known[1].tell()])


def _call(call_id: str, name: str, text: str, *, there: bool = False) -> WantedCall:
    return WantedCall(call_id[:200], name[:200], text[:MAX_INPUT], there)


def _chat(event: Json) -> Told:
    usage, ended, calls = event.get("usage"), False, list[tuple[int | None, WantedCall]]()
    for choice in objects_in(event, "choices"):
        usage = choice.get("usage") if usage is None else usage  # where Moonshot has it
        ended |= choice.get("finish_reason") is not None
        said = object_in(choice, "delta") or object_in(choice, "message")
        for place, piece in enumerate(objects_in(said, "tool_calls")):
            function = object_in(piece, "function") or object_in(piece, "custom")
            index = piece.get("index")
            text = text_in(function, "arguments") or text_in(function, "input")
            call = _call(text_in(piece, "id"), text_in(function, "name"), text)
            calls.append((index if isinstance(index, int) else place, call))
    return Told(text_in(event, "model"), _openai_usage(usage), ended, calls)


def _responses(event: Json) -> Told:
    whole = "output" in event
    response = event if whole else object_in(event, "response")
    done = whole or event.get("type") == "response.output_item.done"
    items = (objects_in(event, "output") if whole else [object_in(event, "item")]) if done else []
    calls = [(None, _item_call(each)) for each in items if text_in(each, "type").endswith("_call")]
    ended = response.get("status") in ("completed", "incomplete", "failed", "cancelled")
    return Told(text_in(response, "model"), _openai_usage(response.get("usage")), ended, [*calls])


def _item_call(item: Json) -> WantedCall:
    kind = text_in(item, "type")
    text = text_in(item, "arguments") or text_in(item, "input") or json.dumps(item.get("action"))
    return _call(text_in(item, "call_id"), text_in(item, "name") or kind, text, there=kind == "web_search_call")


def _openai_usage(told: object) -> object:
    if told is None:
        return None
    if not isinstance(told, dict):
        return _UNREADABLE
    details = [told.get(name) or {} for name in _OPENAI_DETAILS]
    objects = [told, *(each for each in details if isinstance(each, dict))]
    counts = [each.get(name) for each in objects for name in _OPENAI_COUNTS]
    if len(objects) <= len(details) or not all(each is None or is_count(each) for each in counts):
        return _UNREADABLE
    return read_usage(told, TokenUsage()).to_json()


def _gemini(event: Json) -> Told:
    calls, ended = list[tuple[int | None, WantedCall]](), False
    for candidate in objects_in(event, "candidates"):
        ended |= candidate.get("finishReason") is not None
        for part in objects_in(object_in(candidate, "content"), "parts"):
            if call := object_in(part, "functionCall"):
                # Agents give calls ids of their own, so that of a result says nothing.
                calls.append((None, _call("", text_in(call, "name"), json.dumps(call.get("args")))))
    ended |= bool(object_in(event, "promptFeedback").get("blockReason"))
    return Told(text_in(event, "modelVersion"), _gemini_usage(event.get("usageMetadata")), ended, calls)


def _gemini_usage(told: object) -> object:
    if told is None:
        return None
    if not isinstance(told, dict) or not all(each is None or is_count(each) for each in map(told.get, _GEMINI_COUNTS)):
        return _UNREADABLE
    prompt, cached, made, thoughts, tools, total = (count(told, name) for name in _GEMINI_COUNTS)
    cached = min(cached, prompt)
    output = max(made + thoughts, total - prompt - tools if prompt else 0)
    return TokenUsage(prompt + tools, cached, 0, output).to_json()


_Reader = tuple[tuple[bytes, ...], Callable[[Json], Told]]
_READERS: Mapping[str, _Reader] = {  # the words of the events that are read, and what reads them
    CHAT.name: ((b"{",), _chat),
    RESPONSES.name: ((b"usage", b"error", b"output_item.done"), _responses),
    GEMINI.name: ((b"{",), _gemini),
}
