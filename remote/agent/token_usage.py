"""The usage of a turn and of a session: tokens and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ccb.tunnel.wire.journal_records import AgentResultRecord, Record
from ccb.tunnel.wire.messages import ResultMessage
from ccb.tunnel.wire.model_facts import ESTIMATED, TOKENS, ModelFacts, count
from ccb.tunnel.wire.projection import Projection, on, replay

Json = dict[str, Any]

_DETAILS = {
    "cache_creation": ("ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens"),
    "output_tokens_details": ("thinking_tokens",),
    "server_tool_use": ("web_search_requests", "web_fetch_requests"),
}
"""Objects in a usage, with the counts in them."""
_TEXTS = ("service_tier", "inference_geo", "speed")
_MODEL_USAGE = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")
_MODEL_DETAILS = (
    ("webSearchRequests", "server_tool_use", "web_search_requests"),
    ("thinkingTokens", "output_tokens_details", "thinking_tokens"),
    ("cacheCreationEphemeral5mInputTokens", "cache_creation", "ephemeral_5m_input_tokens"),
    ("cacheCreationEphemeral1hInputTokens", "cache_creation", "ephemeral_1h_input_tokens"),
)
"""Counts of `modelUsage`, each with where a usage has it."""


def zero_usage() -> Json:
    usage: Json = dict.fromkeys(TOKENS, 0)
    usage.update({name: dict.fromkeys(counts, 0) for name, counts in _DETAILS.items()})
    usage.update(service_tier="standard", inference_geo="", speed="standard", iterations=[])
    return usage


class Ledger(Projection):
    """The usage of a session: its results, and what `add` counted since. A sub-agent's also counts in its `parent`."""

    def __init__(self, parent: Ledger | None = None) -> None:
        self.parent = parent
        self.turn = zero_usage()
        self.total_cost_usd = 0.0
        self.model_usage: dict[str, Json] = {}

    @staticmethod
    def from_records(records: Iterable[Record]) -> Ledger:
        ledger = Ledger()
        replay(records, ledger)
        return ledger

    @on(ResultMessage, main_only=True)
    def _result(self, result: ResultMessage, _: Record) -> None:
        self.total_cost_usd = float(result.total_cost_usd)
        self.model_usage = {name: dict(entry) for name, entry in result.model_usage.items()}

    @on(AgentResultRecord)
    def _agent_result(self, record: AgentResultRecord, envelope: Record) -> None:
        if isinstance(record.public, ResultMessage):
            self._result(record.public, envelope)

    def start_turn(self) -> None:
        self.turn = zero_usage()

    def add(self, model: str, known: ModelFacts, usage: Mapping[str, Any]) -> None:
        for name in TOKENS:
            self.turn[name] += count(usage, name)
        self.turn.update({name: usage[name] for name in _TEXTS if isinstance(usage.get(name), str)})
        for name, counts in _DETAILS.items():
            found = usage.get(name)
            for each in counts:
                self.turn[name][each] += count(found, each) if isinstance(found, Mapping) else 0
        if usage.get(ESTIMATED):
            self.turn[ESTIMATED] = True
        self._add_to_sums(model, known, usage)
        if self.parent is not None:
            self.parent._add_to_sums(model, known, usage)

    def _add_to_sums(self, model: str, known: ModelFacts, usage: Mapping[str, Any]) -> None:
        cost = known.cost_usd(usage)
        self.total_cost_usd += cost
        entry = self.model_usage.setdefault(
            model,
            {
                **dict.fromkeys(_MODEL_USAGE, 0),
                "costUSD": 0.0,
                "contextWindow": known.context_window,
                "maxOutputTokens": known.max_output,
            },
        )
        entry["costUSD"] += cost
        for name, public in zip(TOKENS, _MODEL_USAGE):
            entry[public] += count(usage, name)
        for public, group, name in _MODEL_DETAILS:
            found = usage.get(group)
            entry[public] = entry.get(public, 0) + (count(found, name) if isinstance(found, Mapping) else 0)
        entry["canonicalModel"] = model
        entry["costBasis"] = "list" if known.priced else "unknown"
        if usage.get(ESTIMATED):
            entry[ESTIMATED] = True

    def snapshot(self) -> dict[str, Json]:
        return {name: dict(entry) for name, entry in self.model_usage.items()}
