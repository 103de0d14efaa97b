"""What a scripted model says in one answer, in no dialect, and the same answer in the events of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.model.model_script import Json


@dataclass(frozen=True)
class Said:
    """One answer. `calls` are names and inputs of tool calls. `stop` is end, length or filter. `usage` has the counts
    of Chat Completions."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, Json], ...] = ()
    stop: str = "end"
    prompt: int = 100
    cached: int = 40
    output: int = 20
    reasoning: int = 8
    ids: tuple[str, ...] = field(default=())


def pieces(text: str, size: int = 3) -> Iterator[str]:
    """The text in odd pieces, also inside JSON."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def call_id(number: int, index: int) -> str:
    return f"call_{number:04d}_{index}"


def chunk(delta: Json | None = None, finish: str | None = None, *, index: int = 0, **more: object) -> Json:
    """An event of Chat Completions."""
    return {"id": "c1", "choices": [{"index": index, "delta": delta or {}, "finish_reason": finish}], **more}


def frag(index: int | None = 0, call_id: str | None = None, name: str | None = None, arguments: str = "") -> Json:
    """A piece of a tool call."""
    made: Json = {"function": {"name": name, "arguments": arguments}, "type": "function"}
    return made | ({} if index is None else {"index": index}) | ({} if call_id is None else {"id": call_id})


def calls_chunk(*pieces: Json, index: int = 0) -> Json:
    return chunk({"tool_calls": list(pieces)}, index=index)


def chat_events(said: Said, number: int, flavour: str) -> Iterator[Json]:
    base: Json = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    if flavour == "azure":
        yield {**base, "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    yield chunk({"role": "assistant", "content": ""}) | base
    field_name = "reasoning" if flavour in ("vllm", "ollama", "openrouter") else "reasoning_content"
    if flavour not in ("openai", "azure", "gemini"):
        for piece in pieces(said.thinking, 5):
            delta: Json = {field_name: piece}
            if flavour == "openrouter":
                delta["reasoning_details"] = [{"type": "reasoning.text", "text": piece, "index": 0, "format": "f"}]
            yield chunk(delta) | base
        if flavour == "openrouter" and said.thinking:
            data = {"type": "reasoning.encrypted", "data": f"sealed-{number}", "index": 1, "format": "f"}
            yield chunk({"reasoning_details": [data]}) | base
    for piece in pieces(said.text):
        yield chunk({"content": piece}) | base
    for index, (name, given) in enumerate(said.calls):
        made = said.ids[index] if said.ids else call_id(number, index)
        start: Json = {"index": index, "id": made, "type": "function", "function": {"name": name, "arguments": ""}}
        if flavour == "gemini":
            start["function"]["arguments"] = json.dumps(given)
            if index == 0:
                start["extra_content"] = {"google": {"thought_signature": f"sig-{number}"}}
            yield chunk({"tool_calls": [start]}) | base
            continue
        yield chunk({"tool_calls": [start]}) | base
        for piece in pieces(json.dumps(given)):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}) | base
    reason = {"end": "tool_calls" if said.calls else "stop", "length": "length", "filter": "content_filter"}[said.stop]
    if flavour in ("gemini", "ollama") and reason == "tool_calls":
        reason = "stop"
    yield chunk({}, reason) | base
    yield {**base, "choices": [], "usage": chat_usage(said, flavour)}


def chat_usage(said: Said, flavour: str) -> Json:
    counts: Json = {"prompt_tokens": said.prompt, "completion_tokens": said.output}
    counts["total_tokens"] = said.prompt + said.output
    if flavour == "deepseek":
        return counts | {
            "prompt_cache_hit_tokens": said.cached,
            "prompt_cache_miss_tokens": said.prompt - said.cached,
            "completion_tokens_details": {"reasoning_tokens": said.reasoning},
        }
    if flavour in ("ollama", "llamacpp"):
        return counts
    if flavour in ("gemini", "grok"):  # these leave reasoning out of the completion
        counts["completion_tokens"] = said.output - said.reasoning
    return counts | {
        "prompt_tokens_details": {"cached_tokens": said.cached},
        "completion_tokens_details": {"reasoning_tokens": said.reasoning},
    }


def reasoning_item(said: Said, number: int) -> Json:
    summary = [{"type": "summary_text", "text": said.thinking}] if said.thinking != "(hidden)" else []
    return {"id": f"rs_{number:053d}", "type": "reasoning", "summary": summary, "encrypted_content": f"gAAA-{number}=="}


def responses_events(said: Said, number: int) -> Iterator[Json]:
    response: Json = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    made: list[Json] = []
    place = 0
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    if said.thinking:
        item = reasoning_item(said, number)
        key = {"item_id": item["id"], "output_index": place}
        begun = {**item, "summary": [], "encrypted_content": "not whole yet"}
        yield {"type": "response.output_item.added", "output_index": place, "item": begun}
        for index, part in enumerate(item["summary"]):
            yield {
                **key,
                "type": "response.reasoning_summary_part.added",
                "summary_index": index,
                "part": {**part, "text": ""},
            }
            for piece in pieces(part["text"], 5):
                yield {**key, "type": "response.reasoning_summary_text.delta", "summary_index": index, "delta": piece}
            yield {**key, "type": "response.reasoning_summary_text.done", "summary_index": index, "text": part["text"]}
            yield {**key, "type": "response.reasoning_summary_part.done", "summary_index": index, "part": part}
        yield {"type": "response.output_item.done", "output_index": place, "item": item}
        made.append(item)
        place += 1
    if said.text:
        text: Json = {"type": "output_text", "text": said.text, "annotations": []}
        message: Json = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed"}
        key = {"item_id": message["id"], "output_index": place, "content_index": 0}
        yield {"type": "response.output_item.added", "output_index": place, "item": {**message, "content": []}}
        yield {**key, "type": "response.content_part.added", "part": {**text, "text": ""}}
        for piece in pieces(said.text):
            yield {**key, "type": "response.output_text.delta", "delta": piece, "logprobs": []}
        yield {**key, "type": "response.output_text.done", "text": said.text, "logprobs": []}
        yield {**key, "type": "response.content_part.done", "part": text}
        made.append({**message, "content": [text]})
        yield {"type": "response.output_item.done", "output_index": place, "item": made[-1]}
        place += 1
    for index, (name, given) in enumerate(said.calls):
        arguments = json.dumps(given)
        item = {"id": f"fc_{number:050d}_{index}", "type": "function_call", "status": "in_progress", "name": name}
        item |= {"call_id": said.ids[index] if said.ids else call_id(number, index), "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": place, "item": dict(item)}
        key = {"item_id": item["id"], "output_index": place}
        for piece in pieces(arguments):
            yield {**key, "type": "response.function_call_arguments.delta", "delta": piece}
        yield {**key, "type": "response.function_call_arguments.done", "arguments": arguments, "name": name}
        item |= {"arguments": arguments, "status": "completed"}
        yield {"type": "response.output_item.done", "output_index": place, "item": item}
        made.append(item)
        place += 1
    ended = {**response, "status": "completed", "output": made, "usage": responses_usage(said)}
    if said.stop == "end":
        yield {"type": "response.completed", "response": ended}
        return
    reason = {"length": "max_output_tokens", "filter": "content_filter"}[said.stop]
    ended |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
    yield {"type": "response.incomplete", "response": ended}


def responses_usage(said: Said) -> Json:
    return {
        "input_tokens": said.prompt,
        "input_tokens_details": {"cached_tokens": said.cached, "cache_write_tokens": 0},
        "output_tokens": said.output,
        "output_tokens_details": {"reasoning_tokens": said.reasoning},
        "total_tokens": said.prompt + said.output,
    }
