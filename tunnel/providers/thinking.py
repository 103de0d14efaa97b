"""Levels of effort, and thinking that must go back to its provider unchanged.

A signature of ccb names the provider and the model that it belongs to: each provider refuses what it cannot read. With
another model it is left out. Thinking as plain text goes back to any model of its provider, and to no other
provider."""

from __future__ import annotations

import base64
import binascii
import json

from ..wire.model_facts import LEVELS, SEALED
from .json_fields import Json, dump, object_in

_BUDGETS = ((1_024, "minimal"), (2_048, "low"), (4_096, "medium"), (8_192, "high"), (16_384, "xhigh"))


def wanted_effort(asked: Json) -> str:
    """Return the level that a request asks for; "" if it leaves that to the model."""
    thinking, config = asked.get("thinking"), asked.get("output_config")
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        return "none"
    effort = config.get("effort") if isinstance(config, dict) else None
    if effort in LEVELS:
        return str(effort)
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if isinstance(budget, int):
        return next((level for most, level in _BUDGETS if budget < most), "max" if budget > 31_999 else "xhigh")
    return ""


def wants_thinking(asked: Json) -> bool:
    thinking = asked.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") in ("enabled", "adaptive")


def sealed(provider: str, model: str, state: Json) -> str:
    data = dump({"p": provider, "m": model, "s": state}).encode("utf-8", "replace")
    return SEALED + base64.urlsafe_b64encode(data).decode()


def opened(block: Json, provider: str, model: str) -> Json:
    """Return the state in a thinking or redacted_thinking block; {} if it belongs to another model or provider."""
    data = _sealed_in(block)
    return object_in(data, "s") if data.get("p") == provider and data.get("m") == model else {}


def is_of(block: Json, provider: str) -> bool:
    """Return whether a provider has made the thinking of a block, with whichever of its models."""
    return _sealed_in(block).get("p") == provider


def _signature_of(block: Json) -> str:
    """Return the signature of ccb in a thinking or redacted_thinking block, "" for any other."""
    text = block.get("data") if block.get("type") == "redacted_thinking" else block.get("signature")
    return text if isinstance(text, str) and text.startswith(SEALED) else ""


def _sealed_in(block: Json) -> Json:
    try:
        data = json.loads(base64.urlsafe_b64decode(_signature_of(block)[len(SEALED) :]))
    except (ValueError, RecursionError, binascii.Error):
        return {}
    return data if isinstance(data, dict) else {}


def without_ours(asked: Json) -> Json:
    """Return a request without the thinking of other providers: Anthropic refuses signatures that it has not made."""
    messages = asked.get("messages")
    if not isinstance(messages, list):
        return asked
    kept = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            left = [block for block in content if not (isinstance(block, dict) and _signature_of(block))]
            if not left:
                continue
            message = {**message, "content": left}
        kept.append(message)
    return {**asked, "messages": kept}
