"""Gemini's API on models of other providers: its requests in the Messages API, and the answers in Gemini's.

What tunes models of Gemini (temperature, topK, thinkingConfig, safetySettings, …) is left out: many others refuse it.
Thinking that has to go back to its model travels in the `thoughtSignature` of the part behind it."""

from __future__ import annotations

import base64
import json
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping

from ..providers.api_errors import error_of
from ..providers.costs import ANSWERED, BilledRequest, billed
from ..providers.dialect import object_schema
from ..providers.foreign_api import ForeignCall
from ..providers.json_fields import Json, dump, list_in, object_in, objects_in, text_in
from ..providers.provider import ProviderRequest, WholeBody
from ..providers.request_content import Untranslatable
from ..wire.model_facts import TOKENS, count
from ..wire.ndjson import MAX_VALUES
from .answer_reader import UNREADABLE, TellingEvents, json_object
from .policy import RequestLimits

_JSON = "application/json"
_TAKEN = {"responseMimeType": (None, "text/plain", _JSON), "logprobs": (None,), "responseLogprobs": (None, False)}
_ONLY_JSON = "Answer with one JSON object and nothing else, without a fence around it. It must fit this schema: "
_CHOICES = {"ANY": {"tool_choice": {"type": "any"}}, "NONE": {"tool_choice": {"type": "none"}}}
_REASONS = {"max_tokens": "MAX_TOKENS", "model_context_window_exceeded": "MAX_TOKENS", "refusal": "SAFETY"}
_THOUGHTS = ("thinking", "redacted_thinking")
_LONGEST = 32_000  # tokens of an answer, where the agent says nothing of that


def translated(
    call: ForeignCall, headers: Mapping[str, str], asked: Json, limits: RequestLimits, longest: int
) -> tuple[BilledRequest, ProviderRequest]:
    """Return a request that asks `call.instead`, whose answers have `longest` tokens at most. Raise Refusal."""
    config, made = object_in(asked, "generationConfig"), said(asked)
    for name, values in _TAKEN.items():
        if config.get(name) not in values:
            raise Untranslatable(f"{call.instead} cannot answer as the {name} of the generationConfig asks")
    if config.get("responseMimeType") == _JSON:
        schema = _schema(config.get("responseJsonSchema") or config.get("responseSchema"))
        made["system"].append({"type": "text", "text": _ONLY_JSON + dump(schema)})
    for block in (*made["system"][-1:], *(each["content"][-1] for each in made["messages"][-1:])):
        block["cache_control"] = {"type": "ephemeral"}
    body = {"model": call.instead, **{name: each for name, each in made.items() if each}, **_tools(asked)}
    if call.answers:
        most = min(_LONGEST, longest, limits.max_output_tokens or longest)
        body |= {"max_tokens": config.get("maxOutputTokens") or most, "stream": True}
        body |= {"stop_sequences": stops} if (stops := config.get("stopSequences")) else {}
    limits.check(body, answers=call.answers)
    path = ANSWERED if call.answers else f"{ANSWERED}/count_tokens"
    data, headers = dump(body).encode("utf-8", "replace"), {**headers, "anthropic-version": "2023-06-01"}
    return billed(body, len(data)), ProviderRequest("POST", path, headers, WholeBody(data), call.instead)


def said(asked: Json) -> Json:
    """Return `system` and `messages` of what a request says, whatever is wrong with it."""
    conversation = _Conversation()
    system, messages = [*conversation.blocks(object_in(asked, "systemInstruction"))], []
    for content in objects_in(asked, "contents"):
        role = "assistant" if content.get("role") == "model" else "user"
        blocks = sorted(conversation.blocks(content), key=lambda block: block["type"] != "tool_result")
        messages += [{"role": role, "content": blocks}] if blocks else []
    return {"system": system, "messages": messages}


class _Conversation:
    """Knows the ids of the calls that have no result yet, by the names of their tools, and how many values may still be
    in signatures: what the host has put there is not measured with the rest of its request."""

    def __init__(self) -> None:
        self._open: defaultdict[str, OrderedDict[str, None]] = defaultdict(OrderedDict)
        self._calls, self._values_left = 0, MAX_VALUES

    def blocks(self, content: Json) -> Iterator[Json]:
        """Yield the blocks of the next message."""
        by_model = content.get("role") == "model"
        for part in objects_in(content, "parts"):
            yield from self._thoughts_in(text_in(part, "thoughtSignature")) if by_model else ()
            if call := object_in(part, "functionCall"):
                call_id, name = _id_of(call) or f"call_{self._calls}", text_in(call, "name")
                self._calls += 1
                self._open[name][call_id] = None
                yield {"type": "tool_use", "id": call_id, "name": name, "input": object_in(call, "args")}
            elif answered := object_in(part, "functionResponse"):
                yield self._result(answered)
            elif data := object_in(part, "inlineData"):
                kind = text_in(data, "mimeType")
                source = {"type": "base64", "media_type": kind, "data": text_in(data, "data")}
                yield {"type": "image" if kind.startswith("image/") else "document", "source": source}
            elif (text := text_in(part, "text")).strip() and not (by_model and part.get("thought")):
                yield {"type": "text", "text": text}

    def _result(self, answered: Json) -> Json:
        """Return a result. One without an id is that of the first call of its name that has none."""
        unanswered, response = self._open[text_in(answered, "name")], object_in(answered, "response")
        use_id = _id_of(answered) or next(iter(unanswered), "")
        unanswered.pop(use_id, None)
        whole = response.get("output", response.get("error")) if len(response) == 1 else response
        text = whole if isinstance(whole, str) else dump(whole)
        content = [*([{"type": "text", "text": text}] if text.strip() else []), *self.blocks(answered)]
        return {"type": "tool_result", "tool_use_id": use_id, "content": content, "is_error": "error" in response}

    def _thoughts_in(self, signature: str) -> list[Json]:
        """Return the blocks in a signature, none for one that Gemini or an agent has made."""
        try:
            text = base64.b64decode(signature).decode()
            self._values_left -= sum(map(text.count, "[{,"))
            found = {"blocks": json.loads(text)} if self._values_left >= 0 else None
        except (ValueError, RecursionError):
            return []
        blocks = [each for each in objects_in(found, "blocks") if each.get("type") in _THOUGHTS]
        return [{name: value for name, value in each.items() if isinstance(value, str)} for each in blocks]


def _id_of(holder: Json) -> str:
    """Return the id as the model has given it: Gemini CLI puts the name of the tool in front."""
    return text_in(holder, "id").removeprefix(f"{holder.get('name')}__")


def _tools(asked: Json) -> Json:
    choice = object_in(object_in(asked, "toolConfig"), "functionCallingConfig")
    allowed = {each for each in list_in(choice, "allowedFunctionNames") if isinstance(each, str)}
    declared = [each for tool in objects_in(asked, "tools") for each in objects_in(tool, "functionDeclarations")]
    tools = []
    for each in declared:
        schema = _schema(each.get("parametersJsonSchema") or each.get("parameters"))
        about = {"name": text_in(each, "name"), "description": text_in(each, "description")}
        tools += [{**about, "input_schema": schema}] if not allowed or about["name"] in allowed else []
    return {"tools": tools, **_CHOICES.get(text_in(choice, "mode"), {})} if tools else {}


def _schema(given: object) -> Json:
    """Return a schema with types as JSON Schema writes them: Gemini's own are OBJECT and STRING."""
    text = re.sub('"type":"[A-Z]+"', lambda found: found[0].lower(), dump(given))
    return object_schema(json.loads(text))


class GeminiAnswer:
    """Takes an answer to `call` in the Messages API, split anywhere, and gives it in Gemini's. It calls `start` with
    status and headers before it gives bytes."""

    def __init__(self, call: ForeignCall, start: Callable[[int, Mapping[str, str]], None]) -> None:
        self._call, self._start, self._is_stream = call, start, ":stream" in call.path
        self._events, self._whole = TellingEvents((b"{",)), bytearray()
        self._usage, self._block, self._failed = Json(), Json(), Json()
        self._thoughts: list[Json] = []  # that go with the next part
        self._parts: list[Json] = []  # that were not given
        self._says, self._reason = False, ""

    def feed(self, piece: bytes) -> bytes:
        """Return what is new of a stream."""
        if not self._call.answers:
            self._whole += piece
        for data in self._events.take(piece) if self._call.answers else ():
            if not self._failed:
                self._take(json_object(data))
        return self._chunk({}) if self._is_stream and self._parts else b""

    def end(self) -> bytes:
        """Return the end of a stream, or the whole answer. Raise Refusal if it is an error."""
        if not self._call.answers:
            return self._given({"totalTokens": count(json_object(self._whole), TOKENS[0])})
        if self._failed or not self._reason:
            raise error_of(self._failed or {"message": "the answer broke off"}, 500, {}, self._call.instead)
        *prompt, output = (count(self._usage, kind) for kind in TOKENS)
        usage = {"promptTokenCount": sum(prompt), "candidatesTokenCount": output}
        usage["cachedContentTokenCount"] = count(self._usage, "cache_read_input_tokens")
        return self._chunk({"usageMetadata": {**usage, "totalTokenCount": sum(prompt) + output}})

    def _chunk(self, usage: Json) -> bytes:
        parts, self._parts = self._parts, []
        candidate = {"content": {"role": "model", "parts": parts}, **({"finishReason": self._reason} if usage else {})}
        return self._given({"candidates": [candidate], "modelVersion": self._call.instead, **usage})

    def _given(self, made: Json) -> bytes:
        self._start(200, {"content-type": "text/event-stream" if self._is_stream else _JSON})
        text = dump(made)
        return (f"data: {text}\r\n\r\n" if self._is_stream else text).encode("utf-8", "replace")

    def _take(self, event: Json) -> None:
        kind, block, delta = event.get("type"), object_in(event, "content_block"), object_in(event, "delta")
        for told in (object_in(event, "message"), event):
            self._usage |= {name: value for name, value in object_in(told, "usage").items() if value}
        self._block = dict(block) if block else self._block
        for name in ("thinking", "signature", "partial_json"):
            if piece := text_in(delta, name):
                self._block[name] = text_in(self._block, name) + piece
        if text := text_in(delta, "thinking"):
            self._parts.append({"text": text, "thought": True})
        elif text := text_in(delta, "text"):
            self._add({"text": text})
        if kind == "error":
            self._failed = object_in(event, "error") or {"message": "no explanation given"}
        elif kind == "content_block_stop":
            self._close(self._block)
        elif reason := text_in(delta, "stop_reason"):
            self._reason = _REASONS.get(reason, "STOP")

    def _close(self, block: Json) -> None:
        if block.get("type") in _THOUGHTS:
            self._thoughts.append(block)
        elif block.get("type") == "tool_use":
            text = text_in(block, "partial_json") or dump(block.get("input") or {})
            given = json_object(text.encode("utf-8", "replace"))
            call = {"id": text_in(block, "id"), "name": text_in(block, "name"), "args": given}
            if given is not UNREADABLE:  # such a call was cut, and must not run
                self._add({"functionCall": call})

    def _add(self, part: Json) -> None:
        if self._thoughts and not (self._says and "text" in part):  # agents make one part of texts that are a row
            sealed = base64.b64encode(dump(self._thoughts).encode("utf-8", "replace")).decode()
            part, self._thoughts = {**part, "thoughtSignature": sealed}, []
        self._parts.append(part)
        self._says = "text" in part
