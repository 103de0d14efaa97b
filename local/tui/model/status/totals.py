"""What a session has used so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ccb.tunnel.wire.messages import ResultLine, as_dict
from ccb.tunnel.wire.models import ESTIMATED, context_tokens

Json = dict[str, Any]

_MAX_NUMBER = 10**15  # a host could send a number that no float holds
_INPUT_FIELDS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


@dataclass
class Totals:
    """Tokens and cost of the session so far. `context_tokens` is the size of the newest request to the model, and with
    its answer once that is complete; `window` is the room that `model` has for both, 0 until a result has told it.
    `estimated`, `context_estimated`: the provider has not told all of the numbers."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    context_tokens: int = 0
    model: str = ""
    window: int = 0
    estimated: bool = False
    context_estimated: bool = False

    def add(self, result: ResultLine) -> None:
        """A turn has ended. `result` names what the session has used so far, or at least what the turn used."""
        self.cost_usd = float(min(result.total_cost_usd, _MAX_NUMBER))
        if result.model_usage:
            self._set(result.model_usage)
            return
        usage = as_dict(result.body.get("usage"))
        self.input_tokens += _sum(usage, _INPUT_FIELDS)
        self.output_tokens += _sum(usage, ("output_tokens",))

    def set_from_result(self, result: Json) -> None:
        """Take over what the session has used so far from its newest result message."""
        used, cost = result.get("modelUsage"), result.get("total_cost_usd")
        self._set(used if isinstance(used, dict) else {})
        self.cost_usd = float(min(cost, _MAX_NUMBER)) if isinstance(cost, int | float) else self.cost_usd

    def set_context(self, usage: Json, *, whole: bool = False) -> None:
        """Take over the size of the context from the usage of a model message, or of a `whole` answer, as the worker
        counts it; without one it stays."""
        size = min(context_tokens(usage), _MAX_NUMBER) if whole else _sum(usage, _INPUT_FIELDS)
        if size:
            self.context_tokens, self.context_estimated = size, bool(usage.get(ESTIMATED))

    @property
    def context_text(self) -> str:
        """How full the model's window is: as a share if its size is known, else in tokens; "" before the first call."""
        if not self.context_tokens:
            return ""
        share = min(100, round(100 * self.context_tokens / self.window)) if self.window else 0
        size = f"{share}%" if self.window else tokens(self.context_tokens)
        return f"context {'~' if self.context_estimated else ''}{size}"

    def _set(self, by_model: Json) -> None:
        models = [each for each in by_model.values() if isinstance(each, dict)]
        fields = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        self.input_tokens = sum(_sum(model, fields) for model in models)
        self.output_tokens = sum(_sum(model, ("outputTokens",)) for model in models)
        self.estimated = any(model.get(ESTIMATED) for model in models)
        named = by_model.get(self.model)
        self.window = _sum(named if isinstance(named, dict) else {}, ("contextWindow",)) or self.window


def tokens(count: int) -> str:
    """Return a number of tokens in short: `950`, `12.3k`, `1.2M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def _sum(usage: Json, fields: tuple[str, ...]) -> int:
    return sum(max(0, min(value, _MAX_NUMBER)) for value in map(usage.get, fields) if isinstance(value, int))
