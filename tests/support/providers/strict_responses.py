"""What the server of Responses refuses."""

from __future__ import annotations

import re
from typing import Any

from tests.support.model.model_script import Json

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FIELDS = frozenset(
    {
        *("model", "input", "instructions", "tools", "stream", "store", "include", "max_output_tokens", "reasoning"),
        *("prompt_cache_key", "safety_identifier"),
    }
)
_PARTS = {"user": ("input_text", "input_image", "input_file"), "assistant": ("output_text",)}


def refusal(body: Json, minted: dict[str, Any]) -> str:
    """Why the server would answer 400, "" if it would not. `minted` is what it has sent before."""
    unknown = body.keys() - _FIELDS
    if unknown:
        return f"Unknown parameter: '{sorted(unknown)[0]}'."
    if body.get("store") is not False:
        return "(this fake wants store: false)"
    if body.get("max_output_tokens", 16) < 16:
        return "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16"
    if len(body.get("prompt_cache_key", "")) > 64:
        return "string too long. Expected a string with maximum length 64"
    return _tools(body) or _items(body, minted)


def _tools(body: Json) -> str:
    tools = body.get("tools")
    if tools is None:
        return ""
    if not 0 < len(tools) <= 128:
        return "tools: 1 to 128"
    for tool in tools:
        if tool.get("type") != "function" or not _NAME.fullmatch(tool.get("name", "")):
            return "Invalid 'tools[0].name'"
        if tool.get("strict") is not False:
            return "(strict must be said: it is true otherwise)"
        if tool.get("parameters", {}).get("type") != "object":
            return "schema must have type 'object'"
    return ""


def _items(body: Json, minted: dict[str, Any]) -> str:
    items = body.get("input")
    if not isinstance(items, list) or not items:
        return "input: at least one item"
    open_calls: list[str] = []
    before: Json = {}
    for item in items:
        kind = item.get("type")
        if before.get("type") == "reasoning" and kind not in ("function_call", "message", "reasoning"):
            return "Item of type 'reasoning' was provided without its required following item."
        if kind == "reasoning":
            if not body.get("include"):
                return "include: reasoning.encrypted_content"
            if item not in minted.get("items", ()):
                return "The encrypted content could not be verified."
        elif kind == "function_call":
            if len(item["call_id"]) > 64:
                return "string too long. Expected a string with maximum length 64"
            if not _NAME.fullmatch(item["name"]) or not isinstance(item["arguments"], str):
                return "function_call: invalid"
            needed = minted.get("before", {}).get(item["call_id"])
            if needed is not None and needed not in items[: items.index(item)]:
                return "Item 'fc' of type 'function_call' was provided without its required 'reasoning' item"
            open_calls.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in open_calls:
                return f"No tool call found for function call output with call_id {item['call_id']}."
            open_calls.remove(item["call_id"])
            why = "" if isinstance(item["output"], str) else _parts("user", item["output"])
            if why:
                return why
        elif kind == "message":
            if open_calls:
                return f"No tool output found for function call {open_calls[0]}."
            why = _parts(item.get("role"), item.get("content"))
            if why:
                return why
        else:
            return f"input: unknown item {kind}"
        before = item
    return f"No tool output found for function call {open_calls[0]}." if open_calls else ""


def _parts(role: object, content: object) -> str:
    if not isinstance(content, list) or not content:
        return "content: at least one part"
    for part in content:
        if part.get("type") not in _PARTS.get(str(role), ()):
            return f"Invalid value: '{part.get('type')}'. Supported values for {role}: {_PARTS.get(str(role))}"
        if part["type"] == "input_image" and not isinstance(part.get("image_url"), str):
            return "Invalid type for 'image_url': expected an image URL, but got an object instead."
        if part["type"] == "input_file" and not (
            part.get("filename") and str(part.get("file_data")).startswith("data:")
        ):
            return "input_file: filename is required"
    return ""
