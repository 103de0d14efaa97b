"""What the answers of a turn have used."""

from __future__ import annotations

from ccb.remote.agent.agent_histories import Ledger
from ccb.tunnel.wire.model_facts import claude_facts


def test_the_parts_of_a_usage_add_up() -> None:
    whole, own = Ledger(), Ledger()
    own.parent = whole
    made = {"input_tokens": 10, "output_tokens": 7, "output_tokens_details": {"thinking_tokens": 5}, "speed": "fast"}
    written = {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 1}
    answer = {**made, "cache_creation_input_tokens": 3, "cache_creation": written, "inference_geo": "eu"}
    answer |= {"server_tool_use": {"web_search_requests": 4, "web_fetch_requests": "many"}}
    for usage in (answer, answer, {"input_tokens": 1, "cache_creation": None, "server_tool_use": [1]}):
        own.add("claude-opus-5-5", claude_facts("claude-opus-5-5"), usage)
    assert own.turn["cache_creation"] == {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 2}
    assert own.turn["output_tokens_details"] == {"thinking_tokens": 10}
    assert own.turn["server_tool_use"] == {"web_search_requests": 8, "web_fetch_requests": 0}
    assert (own.turn["input_tokens"], own.turn["output_tokens"]) == (21, 14)
    (entry,) = whole.model_usage.values()
    assert entry["webSearchRequests"] == 8 and entry["inputTokens"] == 21
    assert (entry["thinkingTokens"], entry["cacheCreationEphemeral5mInputTokens"]) == (10, 4)
    assert (entry["cacheCreationEphemeral1hInputTokens"], entry["canonicalModel"]) == (2, "claude-opus-5-5")
    assert entry["costBasis"] == "list"
    assert (own.turn["speed"], own.turn["inference_geo"], own.turn["iterations"]) == ("fast", "eu", [])
    own.start_turn()
    assert own.turn["output_tokens_details"] == {"thinking_tokens": 0}


def test_a_long_request_costs_as_much_as_the_laptop_counts_for_it() -> None:
    ledger = Ledger()
    ledger.add("claude-sonnet-4-5", claude_facts("claude-sonnet-4-5"), {"input_tokens": 300_000, "output_tokens": 1000})
    assert round(ledger.total_cost_usd, 6) == 2 * 0.9 + 1.5 * 0.015
