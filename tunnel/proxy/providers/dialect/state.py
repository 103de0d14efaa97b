"""Reasoning that a provider wants back unchanged, kept in the signatures of thinking blocks.

A signature of ccb names the provider and the model that it belongs to. With another model it is left out, and so is
one that somebody else made: each provider refuses what it cannot read.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from ..answers.events import dump

Json = dict[str, Any]

MARK = "ccb1."


def sealed(provider: str, model: str, state: Json) -> str:
    """Return the signature that carries `state`."""
    data = dump({"p": provider, "m": model, "s": state}).encode("utf-8", "replace")
    return MARK + base64.urlsafe_b64encode(data).decode()


def opened(block: Json, provider: str, model: str) -> Json | None:
    """Return the state in a thinking or redacted_thinking block; None if it belongs to another model or provider."""
    text = block.get("data") if block.get("type") == "redacted_thinking" else block.get("signature")
    if not isinstance(text, str) or not text.startswith(MARK):
        return None
    try:
        data = json.loads(base64.urlsafe_b64decode(text[len(MARK) :]))
    except (ValueError, RecursionError, binascii.Error):
        return None
    if not isinstance(data, dict) or data.get("p") != provider or data.get("m") != model:
        return None
    state = data.get("s")
    return state if isinstance(state, dict) else None


def without_ours(messages: Sequence[Json]) -> list[Json]:
    """Return the messages without the thinking that other providers made, for Anthropic's own API."""
    kept = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            left = [block for block in content if not _is_ours(block)]
            if not left:
                continue
            message = {**message, "content": left}
        kept.append(message)
    return kept


def _is_ours(block: object) -> bool:
    if not isinstance(block, dict) or block.get("type") not in ("thinking", "redacted_thinking"):
        return False
    text = block.get("data") if block["type"] == "redacted_thinking" else block.get("signature")
    return isinstance(text, str) and text.startswith(MARK)
