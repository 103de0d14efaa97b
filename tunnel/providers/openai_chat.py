"""The dialect Chat Completions, the rules in which its servers differ, and Gemini's schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import field
from typing import Literal

from ..wire.dataclass import dataclass
from ..wire.model_facts import clamped
from .anthropic_events import MAX_ANSWER, MAX_CALLS, WRONG, AnswerError, read_usage
from .dialect import DialectCall, ModelTarget, StreamReader, ToolNames, object_schema, own_tools, short_id, user_fields
from .json_fields import Json, dump, list_in, object_in, objects_in, text_in
from .request_content import RequestTurn, blocks_of, is_media, part_of, plain_text, text_of, turns
from .thinking import is_of, wanted_effort, wants_thinking

_GROWING = ("text", "summary", "data")
MAX_ID = 40
_UNSIGNED = "skip_thought_signature_validator"  # Gemini's own word for calls that another model has made
PATH = "/chat/completions"


def chat_call(rules: ChatRules, asked: Json, target: ModelTarget) -> DialectCall:
    """See `Dialect`."""
    request = _ChatRequest(rules, asked, target)
    body = request.body()
    return DialectCall(PATH, body, ChatReader(rules, target, request.names, _characters(body["messages"])))


class _ChatRequest:
    def __init__(self, rules: ChatRules, asked: Json, target: ModelTarget) -> None:
        self._rules = rules
        self._asked = asked
        self._target = target
        self.names = ToolNames.of(asked)

    def body(self) -> Json:
        """Return the request in the words of the server. Raise Untranslatable."""
        asked, rules = self._asked, self._rules
        body: Json = {"model": self._target.model, "messages": self._messages(), **self._tools()}
        if isinstance(asked.get("max_tokens"), int):
            body[rules.limit_field] = asked["max_tokens"]
        body |= {"stream": True, "stream_options": {"include_usage": True}, **self._reasoning()}
        if rules.openai_fields:
            body |= {"store": False, **user_fields(asked)}
        elif rules.user_field:
            body |= user_fields(asked, rules.user_field)
        return body

    def _messages(self) -> list[Json]:
        system = text_of(self._asked.get("system"))
        messages: list[Json] = [{"role": "system", "content": system}] if system else []
        for turn in turns(self._asked):
            if turn.role == "user":
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
            media = [self._part(block) for block in blocks if is_media(block)]
            parts += media
            yield _tool_message(result, blocks, has_media=bool(media))
        parts += [self._part(block) for block in turn.blocks if block.get("type") != "tool_result"]
        if parts and all(part["type"] == "text" for part in parts):  # local models often want a plain text
            yield {"role": "user", "content": "\n\n".join(part["text"] for part in parts)}
        elif parts:
            yield {"role": "user", "content": parts}

    def _part(self, block: Json) -> Json:
        traits = self._target.traits
        documents = self._rules.files and traits.documents
        part = part_of(block, images=traits.images, documents=documents, by_url=False)
        if part.kind == "image":
            return {"type": "image_url", "image_url": {"url": part.content}}
        if part.kind == "document":
            return {"type": "file", "file": {"filename": part.name, "file_data": part.content}}
        return {"type": "text", "text": part.content}

    def _assistant(self, turn: RequestTurn) -> Json | None:
        text = "".join(str(block.get("text") or "") for block in turn.of("text"))
        calls = self._calls(turn)
        if not text and not calls:
            return None
        message: Json = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = calls
        rules, thoughts = self._rules, self._thoughts(turn)
        if rules.thoughts_back and (thoughts or (calls and rules.thoughts_always)):
            message[rules.thoughts_back] = thoughts
        thinking = turn.of("thinking", "redacted_thinking") if rules.details else []
        if details := [
            each for block in thinking for each in list_in(self._target.state_in(block), "reasoning_details")
        ]:
            message["reasoning_details"] = details
        return message

    def _thoughts(self, turn: RequestTurn) -> str:
        """Return the thinking of a turn that is this provider's. That in front of a call is only its signature."""
        own = [block for block in turn.of("thinking") if is_of(block, self._target.provider)]
        return "".join(str(block.get("thinking") or "") for block in own if not self._signature(block))

    def _calls(self, turn: RequestTurn) -> list[Json]:
        calls: list[Json] = []
        signature = ""
        for block in turn.blocks:
            if block.get("type") in ("thinking", "redacted_thinking"):
                signature = self._signature(block)
            elif block.get("type") == "tool_use":
                function = {
                    "name": self.names.sent(str(block.get("name"))),
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

    def _signature(self, block: Json) -> str:
        return str(self._target.state_in(block).get("thought_signature") or "")

    def _tools(self) -> Json:
        schema = gemini_schema if self._rules.gemini else object_schema
        declared = [
            {"type": "function", "function": {**each, "parameters": schema(each["parameters"])}}
            for each in own_tools(self._asked, self._target.provider, self.names)
        ]
        return {"tools": declared} if declared else {}

    def _reasoning(self) -> Json:
        asked, kind, traits = self._asked, self._rules.reasoning, self._target.traits
        if not kind or not traits.thinking:
            return {}
        wanted = wanted_effort(asked)
        level = clamped(wanted, traits.efforts)
        if kind == "deepseek":
            return _deepseek_thinking(wanted, level)
        if kind == "openrouter":
            on = {"effort": level} if level else {"enabled": True} if wants_thinking(asked) else {}
            made = {"enabled": False} if wanted == "none" else on
            return {"reasoning": made} if made else {}
        if kind == "gemini" and wants_thinking(asked) and wanted != "none":
            return {"extra_body": {"google": {"thinking_config": _gemini_thinking(asked, self._target.model, level)}}}
        return {"reasoning_effort": level} if level else {}


def _tool_message(result: Json, blocks: list[Json], *, has_media: bool) -> Json:
    texts = [plain_text(block) for block in blocks if not is_media(block)]
    texts += ["(see the files in the next message)"] if has_media else []
    text = ("Error: " if result.get("is_error") else "") + "\n\n".join(texts)
    return {"role": "tool", "tool_call_id": short_id(str(result.get("tool_use_id") or ""), MAX_ID), "content": text}


def _deepseek_thinking(wanted: str, level: str) -> Json:
    if wanted == "none":
        return {"thinking": {"type": "disabled"}}
    made: Json = {"thinking": {"type": "enabled"}} if wanted else {}
    return made | ({"reasoning_effort": level} if level else {})


def _gemini_thinking(asked: Json, model: str, level: str) -> Json:
    budget = asked["thinking"].get("budget_tokens")
    if "gemini-2" not in model:
        return {"include_thoughts": True, **({"thinking_level": level} if level else {})}
    return {"include_thoughts": True, **({"thinking_budget": budget} if isinstance(budget, int) else {})}


def _characters(messages: list[Json]) -> int:
    """Return the characters of a conversation, 0 for one with files: they say nothing of its tokens."""
    contents = [each.get("content") or "" for each in messages]
    return 0 if any(isinstance(each, list) for each in contents) else sum(map(len, contents))


@dataclass(frozen=True)
class ChatRules:
    """The rules of one server. `limit_field` carries the output limit. `reasoning` says how effort is asked for.
    `thoughts_back` is the field of an assistant message that takes its thinking back; with `thoughts_always` each
    message with calls needs it. `files`: PDF files are taken. `openai_fields`: store, prompt_cache_key and
    safety_identifier are known. `user_field` carries a hash of the user. `gemini`: schemas and signatures are Gemini's.
    `details`: reasoning comes and goes as reasoning_details. `cuts_silently`: a long conversation loses its start."""

    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    reasoning: Literal["", "effort", "deepseek", "openrouter", "gemini"] = ""
    thoughts_back: str = ""
    thoughts_always: bool = False
    files: bool = False
    openai_fields: bool = False
    user_field: str = ""
    gemini: bool = False
    details: bool = False
    cuts_silently: bool = False


_REASONS = {
    **dict.fromkeys(("stop", "eos", "end_turn"), "end_turn"),
    **dict.fromkeys(("length", "max_tokens"), "max_tokens"),
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "model_context_window_exceeded": "model_context_window_exceeded",
}
_FAILURES = {  # reasons of an answer that is not whole, although the stream has ended well
    "error": "api_error",
    "abort": "api_error",
    "insufficient_system_resource": "overloaded_error",  # DeepSeek's word
    "function_call_filter": "api_error",  # Gemini's, for a call that it has made wrong
}
_SILENT_CUT = 16_000  # characters from which on a conversation may have lost its start
_MOST_IDS = 100  # of one call that are remembered
_MAX_CHARACTERS = 6  # of one token, on average; JSON and code have fewer


@dataclass
class _Fragments:
    """A tool call as far as it has come. Its name is complete once its input has begun."""

    index: int | None
    name: str = ""
    ids: set[str] = field(default_factory=set)
    has_input: bool = False


class ChatReader(StreamReader):
    """Reads one answer. `characters` are those of the conversation that was sent, 0 if they say nothing of tokens."""

    def __init__(self, rules: ChatRules, target: ModelTarget, names: ToolNames, characters: int = 0) -> None:
        super().__init__(target, names)
        self._rules = rules
        self._characters = characters
        self._details: list[Json] = []
        self._details_size = 0
        self._calls: list[_Fragments] = []
        self._done = False

    def feed(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        chunk = self._event(data)
        if not isinstance(chunk, dict) or chunk.get("error"):
            raise self._failure(chunk)
        self.answer.begin(chunk.get("id"))
        self._usage(chunk)
        for choice in objects_in(chunk, "choices"):
            if choice.get("index") in (None, 0, "0"):  # one answer was asked for
                self._usage(choice)  # where Moonshot has it
                self._delta(object_in(choice, "delta") or object_in(choice, "message"))  # the latter in one piece
                if reason := text_in(choice, "finish_reason"):
                    self._stop(reason.partition(":")[0])  # Gemini says behind it why

    def end(self) -> None:
        if not self.answer.stop_reason and self._done and not self._calls and self.answer.begun:
            raise AnswerError("api_error", f"{self._target.provider} ended its answer without a reason")
        used = self.answer.usage.prompt
        if self._rules.cuts_silently and used and self._characters > max(_SILENT_CUT, used * _MAX_CHARACTERS):
            least = self._characters // _MAX_CHARACTERS
            raise AnswerError(
                WRONG,
                f"prompt is too long: {least} tokens > {used} maximum ({self._target.provider} has cut the "
                "conversation without a word; give the model a larger window, such as OLLAMA_CONTEXT_LENGTH)",
            )
        super().end()

    def _usage(self, told: Json) -> None:
        if usage := object_in(told, "usage"):
            self.answer.usage = read_usage(usage, self.answer.usage)

    def _stop(self, reason: str) -> None:
        if kind := _FAILURES.get(reason):
            raise AnswerError(kind, f"{self._target.provider} broke off its answer ({reason})")
        self._flush_details()
        for call in self._calls:
            if not call.name:
                raise AnswerError(WRONG, f"{self._target.provider} sent a tool call without a name")
            self.answer.call(id(call), "", self._names.known(call.name))
        self.answer.stop(_REASONS.get(reason, "end_turn"))

    def _delta(self, delta: Json) -> None:
        answer = self.answer
        answer.thinking(text_in(delta, "reasoning_content") or text_in(delta, "reasoning"))
        if self._rules.details:
            self._take_details(objects_in(delta, "reasoning_details"))
        parts = objects_in(delta, "content")
        content = "".join(str(part.get("text") or "") for part in parts) if parts else text_in(delta, "content")
        if content and _google(delta).get("thought") is True:
            answer.thinking(content)
        elif content:
            self._flush_details()
            answer.text(content)
        answer.text(text_in(delta, "refusal"))
        calls = objects_in(delta, "tool_calls")
        if calls:
            self._flush_details()
        for call in calls:
            self._call(call)

    def _call(self, call: Json) -> None:
        function = object_in(call, "function")
        call_id, name = text_in(call, "id"), text_in(function, "name").strip()
        whole = function.get("arguments")
        arguments = json.dumps(whole) if isinstance(whole, dict) else text_in(function, "arguments")
        index = call.get("index")
        found = self._found(index if isinstance(index, int) else None, call_id, name)
        if call_id and len(found.ids) < _MOST_IDS:
            found.ids.add(call_id[:MAX_CALLS])
        if not found.has_input:
            found.name = (name or found.name)[:MAX_CALLS]
        signature = text_in(_google(call), "thought_signature")
        state = self._sealed({"thought_signature": signature}) if signature else ""
        found.has_input = found.has_input or bool(arguments.strip() and found.name)
        self.answer.call(id(found), call_id, self._names.known(found.name) if found.has_input else "", state=state)
        self.answer.arguments(id(found), arguments)

    def _found(self, index: int | None, call_id: str, name: str) -> _Fragments:
        """Return the call that a fragment goes on with, or a new one. Some servers send no index or the same one for
        each call, no id or a new one with each fragment, and the name with each fragment."""
        known = [each for each in self._calls if index is None or each.index in (index, None)]
        if call_id and (same := [each for each in known if call_id in each.ids]):
            return same[-1]
        if known:
            last = known[-1]
            others_id = bool(call_id and last.ids)
            if not name or not (last.name and (others_id or name != last.name or self.answer.is_whole(id(last)))):
                return last
        self._calls.append(_Fragments(index))
        return self._calls[-1]

    def _take_details(self, details: list[Json]) -> None:
        """Collect pieces of OpenRouter's reasoning. Those of one type and index that follow each other are one."""
        for piece in details:
            self._details_size += 100 + sum(len(value) for value in piece.values() if isinstance(value, str))
            last = self._details[-1] if self._details else {}
            if not _continues(piece, last):
                self._details.append(dict(piece))
                continue
            for name, value in piece.items():
                if name in _GROWING and isinstance(value, str) and isinstance(last.get(name), str):
                    last[name] += value
                elif value is not None:
                    last[name] = value
        if self._details_size > MAX_ANSWER:
            raise AnswerError(WRONG, f"{self._target.provider} reasons in more than {MAX_ANSWER} characters")

    def _flush_details(self) -> None:
        """Put the details so far into the signature of the thinking before this."""
        details, self._details = self._details, []
        if details:
            self.answer.reasoning_state(self._sealed({"reasoning_details": details}))


def _continues(piece: Json, last: Json) -> bool:
    same = bool(last) and all(last.get(name) == piece.get(name) for name in ("type", "index"))
    return same and not (piece.get("id") and last.get("id") and piece["id"] != last["id"])


def _google(part: Json) -> Json:
    return object_in(object_in(part, "extra_content"), "google")


_GEMINI = frozenset(
    {
        *("type", "format", "title", "description", "nullable", "enum", "items", "properties"),
        *("minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength", "pattern"),
    }
)
_GEMINI_FORMATS = {"string": ("enum", "date-time"), "number": ("float", "double"), "integer": ("int32", "int64")}
_MAX_DEPTH = 40
_MAX_PARTS = 4000  # of one schema once its references are replaced


def gemini_schema(schema: object) -> Json:
    """Return a schema with the keywords only that Gemini's parser knows: one unknown keyword fails a whole request.
    References are replaced by what they name, which has a limit: definitions may name each other."""
    given = object_schema(schema)
    return _GeminiSchemas({**(given.get("definitions") or {}), **(given.get("$defs") or {})}).converted(given, 0)


class _GeminiSchemas:
    """Converts the parts of one schema, whose definitions are given."""

    def __init__(self, definitions: Json) -> None:
        self._definitions = definitions
        self._left = _MAX_PARTS

    def converted(self, schema: Json, depth: int) -> Json:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            return {}
        if reference := text_in(schema, "$ref"):
            target = object_in(self._definitions, reference.rsplit("/", 1)[-1])
            return self.converted(target, depth + 1) if target else {}
        kept = {name: value for name, value in schema.items() if name in _GEMINI}
        _set_type(kept, schema)
        choices = [self.converted(each, depth + 1) for each in schema.get("oneOf") or schema.get("anyOf") or ()]
        if choices and all(choices):  # one that allows anything allows what the others do
            kept["anyOf"] = choices
        if "properties" in kept:
            kept |= self._properties(schema, depth + 1)
        if "items" in kept:
            kept["items"] = self.converted(kept["items"], depth + 1)
        return kept

    def _properties(self, schema: Json, depth: int) -> Json:
        properties = {name: self.converted(each, depth) for name, each in schema["properties"].items()}
        required = [name for name in schema.get("required", ()) if name in properties]
        return {"properties": properties, **({"required": required} if required else {})}


def _set_type(kept: Json, schema: Json) -> None:
    """Keep one type, enumerations of texts, and the formats of the type."""
    kind = kept.get("type")
    if isinstance(kind, list):
        kept["type"] = next((each for each in kind if each != "null"), "string")
        kept |= {"nullable": True} if "null" in kind else {}
    enum = kept.pop("enum", None)
    if isinstance(schema.get("const"), str):
        kept |= {"type": "string", "enum": [schema["const"]]}
    elif enum and all(isinstance(each, str) and each for each in enum) and kept.get("type", "string") == "string":
        kept |= {"type": "string", "enum": enum}
    if kept.get("format", "") not in _GEMINI_FORMATS.get(str(kept.get("type")), ()):
        kept.pop("format", None)
