"""Micro-compaction: the contents of old tool results are left out. It costs no model call, but the provider's cache of
everything behind the first of them, so it is done rarely and for many results at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import BASH_OUTPUT, BUILT_IN, Effect

from ...model.tokens import block_tokens
from ..history.history_message import CLEARED, HistoryMessage

Json = dict[str, Any]

_MIN_TOKENS = 100  # smaller results are not worth it


@dataclass(frozen=True)
class OldResults:
    """The results that can be left out, by the ids of their calls, and the tokens that this saves."""

    tool_use_ids: tuple[str, ...]
    tokens: int


def old_results(messages: Sequence[HistoryMessage], keep: int) -> OldResults:
    """Return the results whose contents can be left out. The newest `keep` tokens of results stay, and everything that
    the model has not seen yet. What a tool without effect outside the session has said stays as well: nothing can say
    it again."""
    seen = max((i for i, message in enumerate(messages) if message.role == "assistant"), default=0)
    found: list[str] = []
    saved = newer = 0
    for i in range(len(messages) - 1, 0, -1):
        message = messages[i]
        if message.role != "user":
            continue
        names = {str(b.get("id")): str(b.get("name")) for b in messages[i - 1].blocks if b.get("type") == "tool_use"}
        for block in reversed(message.blocks):
            if block.get("type") != "tool_result":
                continue
            tokens = block_tokens(block)
            newer += tokens if block.get("content") != CLEARED else keep + 1
            if i < seen and newer > keep and tokens >= _MIN_TOKENS and _can_go(names, block):
                found.append(str(block["tool_use_id"]))
                saved += tokens - block_tokens({**block, "content": CLEARED})
    return OldResults(tuple(found[::-1]), saved)


def _can_go(names: dict[str, str], block: Json) -> bool:
    traits = BUILT_IN.get(names.get(str(block.get("tool_use_id")), ""))
    return traits is not None and (traits.effect is not Effect.NONE or traits is BASH_OUTPUT)


def newest(messages: Sequence[HistoryMessage], share: float) -> list[HistoryMessage]:
    """Return the newest messages that make up this share of the bytes, at least the last round. The cut is before an
    assistant message, so each result keeps its call; the API wants a user message first."""
    wanted = share * sum(len(message.encoded()) for message in messages)
    start, size = len(messages), 0
    for i in range(len(messages) - 1, -1, -1):
        size += len(messages[i].encoded())
        if messages[i].role == "assistant" and (size <= wanted or start == len(messages)):
            start = i
    if share >= 1 or start in (0, len(messages)):
        return list(messages)
    first = HistoryMessage("user")
    first.put({"type": "text", "text": "(What was before this is left out.)"})
    return [first, *messages[start:]]
