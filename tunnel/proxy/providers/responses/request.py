"""A request of the Messages API as one of Responses."""

from __future__ import annotations

from typing import Any

from ..dialect.content import client_tools, output_schema, service_tier, text_of, tool_name_list
from ..dialect.dialect import DialectCall, ModelTarget
from ..dialect.effort import clamped, wanted_effort, wants_thinking
from ..dialect.names import ToolNames, hashed
from ..dialect.schemas import object_schema
from .items import InputItems
from .stream import ResponsesReader

Json = dict[str, Any]

PATH = "/responses"
_LEAST_OUTPUT = 16
_COUNTED = ("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text")


class ResponsesDialect:
    """See `Dialect`. Nothing is stored at the provider: its reasoning travels encrypted in the history."""

    def call(self, asked: Json, target: ModelTarget) -> DialectCall:
        """See Dialect."""
        traits, names = target.traits, ToolNames(tool_name_list(asked))
        body: Json = {"model": target.model}
        if instructions := text_of(asked.get("system")):
            body["instructions"] = instructions
        body["input"] = InputItems(target, names).of(asked)
        body |= _tools(asked, target, names)
        if isinstance(asked.get("max_tokens"), int):
            body["max_output_tokens"] = max(_LEAST_OUTPUT, asked["max_tokens"])
        body |= {"stream": True, "store": False}
        if traits.sampling:
            body |= {name: asked[name] for name in ("temperature", "top_p") if asked.get(name) is not None}
        if traits.thinking:
            body["include"] = ["reasoning.encrypted_content"]
            wanted = wanted_effort(asked)
            reasoning: Json = {}
            if level := clamped(wanted, traits.efforts):
                reasoning["effort"] = level
            if wanted != "none" and (wants_thinking(asked) or level):
                reasoning["summary"] = "auto"
            body |= {"reasoning": reasoning} if reasoning else {}
        body |= _bookkeeping(asked) | _format(asked)
        stops = tuple(each for each in asked.get("stop_sequences") or () if isinstance(each, str) and each)
        return DialectCall(PATH, body, ResponsesReader(target, names, stops))


class ResponsesCounter:
    """See `TokenCounter`."""

    path = "/responses/input_tokens"

    def body(self, asked: Json, target: ModelTarget) -> Json:
        """See TokenCounter."""
        body = ResponsesDialect().call(asked, target).body
        return {name: body[name] for name in _COUNTED if name in body}


def _tools(asked: Json, target: ModelTarget, names: ToolNames) -> Json:
    tools = client_tools(asked, target.provider)
    if not tools:
        return {}
    declared = [
        {
            "type": "function",
            "name": names.sent(str(each.get("name"))),
            "description": str(each.get("description") or ""),
            "parameters": object_schema(each.get("input_schema")),
            "strict": False,
        }
        for each in tools
    ]
    made: Json = {"tools": declared}
    choice = asked.get("tool_choice")
    if isinstance(choice, dict):
        kind = choice.get("type")
        if kind == "tool":
            made["tool_choice"] = {"type": "function", "name": names.sent(str(choice.get("name")))}
        elif kind in ("any", "none", "auto"):
            made["tool_choice"] = {"any": "required", "none": "none", "auto": "auto"}[kind]
        if choice.get("disable_parallel_tool_use"):
            made["parallel_tool_calls"] = False
    return made


def _bookkeeping(asked: Json) -> Json:
    made: Json = {}
    metadata = asked.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if isinstance(user, str) and user:
        made |= {"prompt_cache_key": hashed(user), "safety_identifier": hashed(user)}
    return made | service_tier(asked)


def _format(asked: Json) -> Json:
    schema = output_schema(asked)
    return {"text": {"format": {"type": "json_schema", **schema, "strict": False}}} if schema is not None else {}
