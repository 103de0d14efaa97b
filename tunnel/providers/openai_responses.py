"""The dialect Responses of OpenAI."""

from __future__ import annotations

from collections.abc import Iterator

from ..wire.model_facts import clamped
from .anthropic_events import read_usage
from .dialect import DialectCall, ModelTarget, StreamReader, ToolNames, object_schema, own_tools, short_id, user_fields
from .json_fields import Json, dump, object_in, objects_in, text_in
from .request_content import RequestTurn, blocks_of, is_media, part_of, plain_text, text_of, turns
from .thinking import wanted_effort, wants_thinking

MAX_ID = 64


PATH, COUNT_PATH = "/responses", "/responses/input_tokens"
_LEAST_OUTPUT = 16
_COUNTED = ("model", "input", "instructions", "tools", "reasoning")


def responses_call(asked: Json, target: ModelTarget) -> DialectCall:
    """See `Dialect`. Nothing is stored at the provider: its reasoning travels encrypted in the history."""
    names = ToolNames.of(asked)
    body: Json = {"model": target.model}
    if instructions := text_of(asked.get("system")):
        body["instructions"] = instructions
    body["input"] = [
        item
        for turn in turns(asked)
        for item in (_user(turn, target) if turn.role == "user" else _assistant(turn, target, names))
    ]
    declared = [
        {"type": "function", "strict": False, **each, "parameters": object_schema(each["parameters"])}
        for each in own_tools(asked, target.provider, names)
    ]
    body |= {"tools": declared} if declared else {}
    if isinstance(asked.get("max_tokens"), int):
        body["max_output_tokens"] = max(_LEAST_OUTPUT, asked["max_tokens"])
    body |= {"stream": True, "store": False}
    if target.traits.thinking:
        body |= {"include": ["reasoning.encrypted_content"], **_reasoning(asked, target)}
    body |= user_fields(asked)
    return DialectCall(PATH, body, ResponsesReader(target, names))


def count_body(asked: Json, target: ModelTarget) -> Json:
    """Return the body that asks for the size of a request at COUNT_PATH. Raise Untranslatable."""
    body = responses_call(asked, target).body
    return {name: body[name] for name in _COUNTED if name in body}


def _user(turn: RequestTurn, target: ModelTarget) -> Iterator[Json]:
    for result in turn.of("tool_result"):
        blocks = blocks_of(result.get("content"))
        output: str | list[Json]
        if any(is_media(block) for block in blocks):
            output = [_part(block, target) for block in blocks]
            if result.get("is_error"):
                output.insert(0, {"type": "input_text", "text": "Error:"})
        else:
            output = "\n\n".join(plain_text(block) for block in blocks)
            if result.get("is_error"):
                output = f"Error: {output}"
        call_id = short_id(str(result.get("tool_use_id") or ""), MAX_ID)
        yield {"type": "function_call_output", "call_id": call_id, "output": output}
    parts = [_part(block, target) for block in turn.blocks if block.get("type") != "tool_result"]
    if parts:
        yield {"type": "message", "role": "user", "content": parts}


def _part(block: Json, target: ModelTarget) -> Json:
    part = part_of(block, images=target.traits.images, documents=target.traits.documents, by_url=True)
    if part.kind == "image":
        return {"type": "input_image", "detail": "auto", "image_url": part.content}
    if part.kind == "text":
        return {"type": "input_text", "text": part.content}
    if part.content.startswith("data:"):
        return {"type": "input_file", "filename": part.name, "file_data": part.content}
    return {"type": "input_file", "file_url": part.content}


def _assistant(turn: RequestTurn, target: ModelTarget, names: ToolNames) -> Iterator[Json]:
    for block in turn.blocks:
        kind = block.get("type")
        if kind in ("thinking", "redacted_thinking"):
            item = object_in(target.state_in(block), "item")
            if item.get("type") == "reasoning":  # a host could write another one
                yield item
        elif kind == "text" and block.get("text"):
            part = {"type": "output_text", "text": block["text"], "annotations": []}
            yield {"type": "message", "role": "assistant", "content": [part]}
        elif kind == "tool_use":
            yield {
                "type": "function_call",
                "call_id": short_id(str(block.get("id")), MAX_ID),
                "name": names.sent(str(block.get("name"))),
                "arguments": dump(block.get("input") or {}),
            }


def _reasoning(asked: Json, target: ModelTarget) -> Json:
    wanted = wanted_effort(asked)
    level = clamped(wanted, target.traits.efforts)
    made = {"effort": level} if level else {}
    if wanted != "none" and (wants_thinking(asked) or level):
        made["summary"] = "auto"
    return {"reasoning": made} if made else {}


_INCOMPLETE = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class ResponsesReader(StreamReader):
    def __init__(self, target: ModelTarget, names: ToolNames) -> None:
        super().__init__(target, names)
        self._parts: set[object] = set()
        self._spoken: set[object] = set()

    def feed(self, data: bytes) -> None:
        if data == b"[DONE]":
            return
        event = self._event(data)
        event = event if isinstance(event, dict) else {"error": event}
        kind, place = text_in(event, "type") or "error", event.get("output_index")
        if not self.answer.begun and kind not in ("error", "response.failed"):
            self.answer.begin(object_in(event, "response").get("id"))
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                self._spoken.add(place)
                self.answer.text(text_in(event, "delta"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self.answer.thinking(text_in(event, "delta"))
            case "response.reasoning_summary_part.added":
                if place in self._parts:  # a summary may have several parts: an empty line divides them
                    self.answer.thinking("\n\n")
                self._parts.add(place)
            case "response.function_call_arguments.delta":
                self.answer.arguments(place, text_in(event, "delta"))
            case "response.output_item.added":
                self._added(event)
            case "response.output_item.done":
                self._item_done(event)
            case "response.completed" | "response.incomplete":
                self._ended(event)
            case "response.failed" | "error":
                usage = object_in(object_in(event, "response"), "usage")
                self.answer.usage = read_usage(usage, self.answer.usage)
                raise self._failure(event)

    def _added(self, event: Json) -> None:
        item = object_in(event, "item")
        if item.get("type") == "function_call":
            name = self._names.known(str(item.get("name") or ""))
            self.answer.call(event.get("output_index"), str(item.get("call_id") or ""), name)

    def _item_done(self, event: Json) -> None:
        item = object_in(event, "item")
        kind, key = item.get("type"), event.get("output_index")
        if kind == "function_call":
            self._added(event)
            self.answer.call_done(key, text_in(item, "arguments"))
        elif kind == "reasoning":
            # The item is taken from here: its encrypted content is whole only now.
            kept = {name: value for name, value in item.items() if name != "status"}
            self.answer.reasoning_state(self._sealed({"item": kept}))
        elif kind == "message" and key not in self._spoken:
            for part in objects_in(item, "content"):
                self.answer.text(str(part.get("text") or part.get("refusal") or ""))

    def _ended(self, event: Json) -> None:
        response = object_in(event, "response")
        self.answer.usage = read_usage(object_in(response, "usage"), self.answer.usage)
        why = object_in(response, "incomplete_details").get("reason")
        complete = event["type"] == "response.completed"
        self.answer.stop("end_turn" if complete else _INCOMPLETE.get(str(why), "max_tokens"))
        self.answer.finish()
