"""Token counts of an answer, as OpenAI's dialects have them, turned into those of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....wire.dataclass import dataclass

Json = dict[str, Any]


@dataclass(frozen=True)
class TokenUsage:
    """`prompt` and `output` are totals: what was read from the cache or written to it is inside `prompt`, reasoning
    inside `output`."""

    prompt: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    def to_json(self) -> Json:
        """Return the `usage` object of the Messages API, which counts each input token once."""
        usage: Json = {
            "input_tokens": max(0, self.prompt - self.cache_read - self.cache_write),
            "cache_creation_input_tokens": self.cache_write,
            "cache_read_input_tokens": self.cache_read,
            "output_tokens": self.output,
        }
        if self.reasoning:
            usage["output_tokens_details"] = {"thinking_tokens": self.reasoning}
        return usage


def read_usage(usage: Mapping[str, Any]) -> TokenUsage:
    """Return the counts in a `usage` object of Chat Completions or Responses."""
    prompt = _count(usage, "prompt_tokens") or _count(usage, "input_tokens")
    output = _count(usage, "completion_tokens") or _count(usage, "output_tokens")
    read_in = _details(usage, "prompt_tokens_details") or _details(usage, "input_tokens_details")
    details = _details(usage, "completion_tokens_details") or _details(usage, "output_tokens_details")
    total = _count(usage, "total_tokens")
    if total > prompt + output and prompt:
        output = total - prompt  # Gemini and xAI leave reasoning out of the completion, and bill it
    return TokenUsage(
        prompt=prompt,
        cache_read=_count(read_in, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens"),
        cache_write=_count(read_in, "cache_write_tokens"),
        output=output,
        reasoning=_count(details, "reasoning_tokens"),
    )


def _details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = usage.get(name)
    return value if isinstance(value, dict) else {}


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
