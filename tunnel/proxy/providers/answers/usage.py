"""Token counts of an answer, as OpenAI's dialects have them, turned into those of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....wire.dataclass import dataclass
from ....wire.models import ESTIMATED, count

Json = dict[str, Any]


@dataclass(frozen=True)
class TokenUsage:
    """`prompt` and `output` are totals: what was read from the cache or written to it is inside `prompt`, reasoning
    inside `output`. `total` is what the provider calls so. `estimated`: not all of it comes from the provider."""

    prompt: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    total: int = 0
    estimated: bool = False

    def to_json(self) -> Json:
        """Return the `usage` object of the Messages API, which counts each input token once."""
        usage: Json = {
            "input_tokens": self.prompt - self.cache_read - self.cache_write,
            "cache_creation_input_tokens": self.cache_write,
            "cache_read_input_tokens": self.cache_read,
            "output_tokens": self.output,
        }
        if self.reasoning:
            usage["output_tokens_details"] = {"thinking_tokens": self.reasoning}
        return usage | ({ESTIMATED: True} if self.estimated else {})

    def completed(self, prompt: int, output: int) -> TokenUsage:
        """Return the usage with what the provider has not told. `prompt` and `output` are estimates."""
        if self.total and not (self.prompt or self.output):
            output = min(output, self.total)
            return replace(self, prompt=self.total - output, output=output, estimated=True)
        made = self
        if not made.prompt:
            told = made.total - made.output
            made = replace(made, prompt=max(told, 0) or prompt, estimated=told <= 0)
        if not made.output:
            made = replace(made, output=output, estimated=True)
        return made


def read_usage(usage: Mapping[str, Any], before: TokenUsage | None = None) -> TokenUsage:
    """Return the counts in a `usage` object of Chat Completions or Responses. Of one that came `before` counts what
    this one does not tell."""
    before = before or TokenUsage()
    prompt = _count(usage, "prompt_tokens", "input_tokens") or before.prompt
    output = _count(usage, "completion_tokens", "output_tokens") or before.output
    read_in = _details(usage, "prompt_tokens_details") or _details(usage, "input_tokens_details")
    details = _details(usage, "completion_tokens_details") or _details(usage, "output_tokens_details")
    total = _count(usage, "total_tokens") or before.total
    read = _count(read_in, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens") or before.cache_read
    written = _count(read_in, "cache_write_tokens") or before.cache_write
    if read + written > prompt and total >= prompt + read + written + output:
        prompt += read + written  # this server does not count them as a part of the prompt
    elif prompt:
        read = min(read, prompt)
        written = min(written, prompt - read)
    else:
        prompt = read + written
    if total > prompt + output and prompt:
        output = total - prompt  # Gemini and xAI leave reasoning out of the completion, and bill it
    reasoning = min(_count(details, "reasoning_tokens") or before.reasoning, output)
    return TokenUsage(prompt, read, written, output, reasoning, total)


def _details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = usage.get(name)
    return value if isinstance(value, dict) else {}


def _count(usage: Mapping[str, Any], *names: str) -> int:
    """Return the first of these counts that tells something."""
    return next((found for name in names if (found := count(usage, name))), 0)
