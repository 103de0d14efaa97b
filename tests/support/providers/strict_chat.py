"""What the servers of Chat Completions refuse, each in its own way."""

from __future__ import annotations

import re
from typing import Any

from tests.support.model.model_script import Json

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_COMMON = frozenset({"model", "messages", "stream", "stream_options", "tools", "max_tokens", "reasoning_effort"})
_OWN: dict[str, frozenset[str]] = {
    "openai": frozenset({"max_completion_tokens", "store", "prompt_cache_key", "safety_identifier"}),
    "gemini": frozenset({"extra_body"}),
    "deepseek": frozenset({"thinking", "user_id"}),
    "openrouter": frozenset({"reasoning"}),
}
_GEMINI_UNKNOWN = frozenset(
    {
        *("$schema", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems", "const", "patternProperties"),
        *("propertyNames", "not", "$ref", "$defs", "oneOf", "allOf", "additionalProperties", "examples"),
    }
)
_SIGNATURES = re.compile(r"sig-\d+")


def refusal(body: Json, flavour: str, minted: dict[str, Any], *, wants_usage: bool = True) -> str:
    """Why a server of this flavour would answer 400, "" if it would not. `minted` is what it has sent before.
    `wants_usage`: a stream without `include_usage` is refused, too."""
    return _fields(body, flavour, wants_usage=wants_usage) or _tools(body, flavour) or _messages(body, flavour, minted)


def _fields(body: Json, flavour: str, *, wants_usage: bool) -> str:
    family = "openai" if flavour == "azure" else flavour
    unknown = body.keys() - _COMMON - _OWN.get(family, frozenset())
    if unknown:
        return f"Unrecognized request argument supplied: {sorted(unknown)[0]}"
    if "stream_options" in body and not body.get("stream"):
        return "stream_options is only allowed when stream is enabled"
    if wants_usage and body.get("stream") and not (body.get("stream_options") or {}).get("include_usage"):
        return "(this fake wants include_usage: without it no call is counted)"
    if len(body.get("prompt_cache_key", "")) > 64 or len(body.get("safety_identifier", "")) > 64:
        return "string too long. Expected a string with maximum length 64"
    if flavour == "deepseek" and not re.fullmatch(r"[a-zA-Z0-9_-]{0,512}", body.get("user_id", "")):
        return "user_id: invalid characters"
    reasons = str(body.get("model")).startswith(("gpt-5", "o3", "grok-4"))
    if reasons and family == "openai" and "max_tokens" in body:
        return "Unsupported parameter: 'max_tokens' is not supported with this model."
    if flavour == "gemini" and "reasoning_effort" in body and "extra_body" in body:
        return "reasoning_effort and thinking_config cannot be used together"
    return ""


def _tools(body: Json, flavour: str) -> str:
    tools = body.get("tools")
    if tools is None:
        return ""
    if not 0 < len(tools) <= 128:
        return f"tools: array of {len(tools)}, expected 1 to 128"
    for tool in tools:
        function = tool.get("function", {})
        if tool.get("type") != "function" or not _NAME.fullmatch(function.get("name", "")):
            return f"tools: invalid function name {function.get('name')!r}"
        schema = function.get("parameters")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            return "schema must have type 'object'"
        if {"oneOf", "anyOf", "allOf", "enum", "not"} & schema.keys():
            return "schema must not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level"
        if flavour == "gemini" and (bad := _unknown_keyword(schema)):
            return f'Invalid JSON payload received. Unknown name "{bad}" at tools'
    return ""


def _unknown_keyword(schema: object) -> str:
    if isinstance(schema, list):
        return next((bad for each in schema if (bad := _unknown_keyword(each))), "")
    if not isinstance(schema, dict):
        return ""
    for name, value in schema.items():
        if name in _GEMINI_UNKNOWN:
            return str(name)
        inside = list(value.values()) if name == "properties" and isinstance(value, dict) else value
        if bad := _unknown_keyword(inside):
            return bad
    return ""


def _messages(body: Json, flavour: str, minted: dict[str, Any]) -> str:
    open_calls: list[str] = []
    messages = body.get("messages") or []
    if not messages:
        return "messages: at least one"
    for index, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if open_calls and role != "tool":
            return (
                "An assistant message with 'tool_calls' must be followed by tool messages (insufficient tool messages)"
            )
        if role == "system" and index:
            return "System message must be at the beginning."
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            if not isinstance(content, str):
                return "tool: content must be a text"
            open_calls.remove(message["tool_call_id"])
        elif role == "assistant":
            why = _assistant(message, flavour, minted)
            if why:
                return why
            open_calls = [call["id"] for call in message.get("tool_calls", ())]
        elif role == "user":
            why = _user(content, flavour)
            if why:
                return why
        elif role != "system":
            return f"messages[{index}].role: invalid"
    if open_calls:
        return "tool_calls without results"
    return "the last message is the assistant's" if messages[-1]["role"] == "assistant" else ""


def _assistant(message: Json, flavour: str, minted: dict[str, Any]) -> str:
    calls = message.get("tool_calls")
    if calls == [] or (not calls and not message.get("content")):
        return "assistant: content or tool_calls"
    for call in calls or ():
        if len(call["id"]) > 40:
            return "string too long. Expected a string with maximum length 40"
        if not _NAME.fullmatch(call["function"]["name"]) or not isinstance(call["function"]["arguments"], str):
            return "tool_calls: invalid"
        if flavour != "gemini" and "extra_content" in call:
            return "Unknown parameter: extra_content"
    if flavour == "deepseek" and calls and "reasoning_content" not in message:
        return "The `reasoning_content` in the thinking mode must be passed back to the API."
    owed = minted.get("owed", {}).get(calls[0]["id"]) if calls else None
    if owed is not None and _reasoning(message, flavour) != owed:
        return f"the reasoning of this call was another one: {owed!r}"
    if flavour == "gemini" and calls:
        signature = calls[0].get("extra_content", {}).get("google", {}).get("thought_signature", "")
        if signature != "skip_thought_signature_validator" and signature not in minted.get("signatures", ()):
            return "Function call is missing a thought_signature in functionCall parts."
    if "reasoning_details" in message and message["reasoning_details"] not in minted.get("details", ()):
        return "reasoning_details were changed"
    return ""


def _reasoning(message: Json, flavour: str) -> object:
    if flavour == "gemini":
        return message["tool_calls"][0].get("extra_content", {}).get("google", {}).get("thought_signature")
    return message.get({"deepseek": "reasoning_content"}.get(flavour, "reasoning_details"))


def _user(content: object, flavour: str) -> str:
    if isinstance(content, str):
        return "" if content else "user: empty content"
    if not isinstance(content, list) or not content:
        return "user: invalid content"
    for part in content:
        kind = part.get("type")
        if kind not in ("text", "image_url", "file"):
            return f"unknown part {kind}"
        if kind == "image_url" and flavour == "deepseek":
            return "unknown variant `image_url`, expected `text`"
        if kind == "file" and flavour not in ("openai", "azure", "openrouter"):
            return "unknown part file"
        if kind == "image_url" and not str(part["image_url"].get("url")).startswith(("data:image/", "https://")):
            return "Invalid image URL"
    return ""
