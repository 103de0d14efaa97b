"""A request of the Messages API as one of Chat Completions."""

from __future__ import annotations

from typing import Any

from ..dialect.content import client_tools, output_schema, service_tier, tool_name_list
from ..dialect.dialect import DialectCall, ModelTarget
from ..dialect.effort import clamped, wanted_effort, wants_thinking
from ..dialect.names import ToolNames, hashed
from ..dialect.schemas import gemini_schema, object_schema
from .messages import ChatMessages
from .rules import ChatRules
from .stream import ChatReader

Json = dict[str, Any]

PATH = "/chat/completions"
_MAX_STOPS = 4


class ChatDialect:
    """See `Dialect`."""

    def __init__(self, rules: ChatRules) -> None:
        self._rules = rules

    def call(self, asked: Json, target: ModelTarget) -> DialectCall:
        """See Dialect."""
        rules, traits = self._rules, target.traits
        names = ToolNames(tool_name_list(asked))
        body: Json = {"model": target.model, "messages": ChatMessages(rules, target, names).of(asked)}
        body |= self._tools(asked, target, names)
        if isinstance(asked.get("max_tokens"), int):
            body[rules.limit_field] = asked["max_tokens"]
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        if traits.sampling:
            body |= {name: asked[name] for name in ("temperature", "top_p") if asked.get(name) is not None}
        stops = tuple(each for each in asked.get("stop_sequences") or () if isinstance(each, str) and each)
        native = rules.stop and traits.sampling and len(stops) <= _MAX_STOPS
        if stops and native:
            body["stop"] = list(stops)
        body |= self._reasoning(asked, target) | self._bookkeeping(asked) | _format(asked)
        sent = sum(len(str(each.get("content") or "")) for each in body["messages"] if each["role"] != "tool")
        sent += sum(len(each["content"]) for each in body["messages"] if each["role"] == "tool")
        has_media = any(isinstance(each.get("content"), list) for each in body["messages"])
        reader = ChatReader(
            rules, target, names, () if native else stops, characters=0 if has_media else sent
        )  # fmt: skip
        return DialectCall(PATH, body, reader)

    def _tools(self, asked: Json, target: ModelTarget, names: ToolNames) -> Json:
        tools = client_tools(asked, target.provider)
        if not tools:
            return {}
        schema = gemini_schema if self._rules.gemini else object_schema
        declared = [
            {
                "type": "function",
                "function": {
                    "name": names.sent(str(each.get("name"))),
                    "description": str(each.get("description") or ""),
                    "parameters": schema(each.get("input_schema")),
                },
            }
            for each in tools
        ]
        made: Json = {"tools": declared}
        choice = asked.get("tool_choice")
        if isinstance(choice, dict):
            kind = choice.get("type")
            if kind == "tool":
                made["tool_choice"] = {"type": "function", "function": {"name": names.sent(str(choice.get("name")))}}
            elif kind in ("any", "none", "auto"):
                made["tool_choice"] = {"any": "required", "none": "none", "auto": "auto"}[kind]
            if choice.get("disable_parallel_tool_use") and self._rules.parallel:
                made["parallel_tool_calls"] = False
        return made

    def _reasoning(self, asked: Json, target: ModelTarget) -> Json:
        kind, traits = self._rules.reasoning, target.traits
        if not kind or not traits.thinking:
            return {}
        wanted = wanted_effort(asked)
        level = clamped(wanted, traits.efforts)
        if kind == "deepseek":
            made: Json = {"thinking": {"type": "disabled" if wanted == "none" else "enabled"}} if wanted else {}
            return made | ({"reasoning_effort": level} if level and wanted != "none" else {})
        if kind == "openrouter":
            if wanted == "none":
                return {"reasoning": {"enabled": False}}
            return (
                {"reasoning": {"effort": level} if level else {"enabled": True}}
                if wants_thinking(asked) or level
                else {}
            )
        if kind == "gemini" and wants_thinking(asked) and wanted != "none":
            config: Json = {"include_thoughts": True}
            budget = asked["thinking"].get("budget_tokens")
            if "gemini-2" in target.model and isinstance(budget, int):
                config["thinking_budget"] = budget
            elif level and "gemini-2" not in target.model:
                config["thinking_level"] = level
            return {"extra_body": {"google": {"thinking_config": config}}}
        return {"reasoning_effort": level} if level else {}

    def _bookkeeping(self, asked: Json) -> Json:
        rules, made = self._rules, Json()
        metadata = asked.get("metadata")
        user = metadata.get("user_id") if isinstance(metadata, dict) else None
        if rules.openai_fields:
            made["store"] = False
        if isinstance(user, str) and user:
            stands_for = hashed(user)
            if rules.openai_fields:
                made |= {"prompt_cache_key": stands_for, "safety_identifier": stands_for}
            elif rules.user_field:
                made[rules.user_field] = stands_for
        return made | service_tier(asked) if rules.openai_fields else made


def _format(asked: Json) -> Json:
    schema = output_schema(asked)
    return {"response_format": {"type": "json_schema", "json_schema": schema}} if schema is not None else {}
