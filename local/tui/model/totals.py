"""What a session has used so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...session.messages import Result

Json = dict[str, Any]


@dataclass
class Totals:
    """Tokens and money of the session so far."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    context_tokens: int = 0

    def add(self, result: Result) -> None:
        """A turn has ended. Its message says what the session used so far, or at least what the turn did."""
        self.cost_usd = result.total_cost_usd
        if result.modelUsage:
            self.take_all({"modelUsage": result.modelUsage})
            return
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            value = result.usage.get(name)
            self.input_tokens += value if isinstance(value, int) else 0
        output = result.usage.get("output_tokens")
        self.output_tokens += output if isinstance(output, int) else 0

    def take_all(self, result: Json) -> None:
        """What the session used so far, from its newest result message."""
        used = result.get("modelUsage")
        models = [each for each in used.values() if isinstance(each, dict)] if isinstance(used, dict) else []

        def total(*names: str) -> int:
            values = [model.get(name) for model in models for name in names]
            return sum(value for value in values if isinstance(value, int))

        self.input_tokens = total("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        self.output_tokens = total("outputTokens")
        cost = result.get("total_cost_usd")
        self.cost_usd = float(cost) if isinstance(cost, int | float) else self.cost_usd
