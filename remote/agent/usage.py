"""Tokens and money: of one turn, and of the session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..model.models import cost_usd, count, facts

Json = dict[str, Any]

_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
_MODEL_USAGE = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")


def zero_usage() -> Json:
    """A usage object of no tokens, with all the fields clients know."""
    usage: Json = dict.fromkeys(_TOKENS, 0)
    usage["server_tool_use"] = {"web_search_requests": 0, "web_fetch_requests": 0}
    usage["service_tier"] = "standard"
    return usage


class Ledger:
    """Cumulative for the session; `turn` is reset by `start_turn`."""

    def __init__(self) -> None:
        self.turn = zero_usage()
        self.total_cost_usd = 0.0
        self.model_usage: dict[str, Json] = {}

    @staticmethod
    def from_events(events: Iterable[tuple[str, Json]]) -> Ledger:
        """Go on from the last result in the journal."""
        ledger = Ledger()
        last: Json = {}
        for kind, body in events:
            if kind == "message" and body.get("type") == "result":
                last = body
        cost = last.get("total_cost_usd")
        ledger.total_cost_usd = float(cost) if isinstance(cost, (int, float)) else 0.0
        usage = last.get("modelUsage")
        if isinstance(usage, dict):
            ledger.model_usage = {name: dict(entry) for name, entry in usage.items() if isinstance(entry, dict)}
        return ledger

    def start_turn(self) -> None:
        self.turn = zero_usage()

    def add(self, model: str, usage: Mapping[str, Any]) -> None:
        """Count one answer of `model`."""
        cost = cost_usd(model, usage)
        self.total_cost_usd += cost
        known = facts(model)
        entry = self.model_usage.setdefault(
            model,
            {
                **dict.fromkeys(_MODEL_USAGE, 0),
                "webSearchRequests": 0,
                "costUSD": 0.0,
                "contextWindow": known.context_window,
                "maxOutputTokens": known.max_output,
            },
        )
        entry["costUSD"] += cost
        for name, public in zip(_TOKENS, _MODEL_USAGE):
            tokens = count(usage, name)
            self.turn[name] += tokens
            entry[public] += tokens

    def snapshot(self) -> dict[str, Json]:
        """`modelUsage` of a result."""
        return {name: dict(entry) for name, entry in self.model_usage.items()}
