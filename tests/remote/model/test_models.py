"""Limits and prices of models, by whatever name a provider has them."""

from __future__ import annotations

import pytest

from ccb.remote.model.model_request import max_tokens, resolve_model
from ccb.tunnel.wire.model_facts import ModelFacts, ModelTable, claude_facts


@pytest.mark.parametrize(
    ("model", "price", "output"),
    [
        ("claude-sonnet-4-5-20250929", 3, 64_000),
        ("claude-opus-4-5", 5, 64_000),
        ("claude-opus-4-20250514", 15, 32_000),
        ("claude-opus-4", 15, 32_000),
        ("claude-opus-4@20250514", 15, 32_000),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", 15, 32_000),
        ("anthropic/claude-opus-4.1", 15, 32_000),
        ("anthropic/claude-3.5-haiku", 0.8, 8_192),
        ("anthropic.claude-3-sonnet-20240229-v1:0", 3, 4_096),
        ("claude-haiku-4-5", 1, 64_000),
    ],
)
def test_a_model_has_its_price_and_limit(model: str, price: float, output: int) -> None:
    known = claude_facts(model)
    assert (known.input_price, known.max_output, max_tokens(known, escalated=True)) == (price, output, output)


def test_an_alias_may_ask_for_the_long_window() -> None:
    assert resolve_model("sonnet[1m]") == "claude-sonnet-4-5[1m]"
    known = ModelTable().facts(resolve_model("opus[1m]"))
    assert (known.input_price, known.context_window) == (5, 1_000_000)


def test_an_answer_is_paid_for_under_the_name_whose_price_is_known() -> None:
    table = ModelTable()
    table.learn("lab/coder", ModelFacts(input_price=1, output_price=2))
    table.learn("claude-sonnet-5-5", ModelFacts(input_price=2, output_price=10))
    table.learn("lab/tiny", ModelFacts(free=True))
    assert table.paid_as("coder", "lab/coder") == table.paid_as("", "lab/coder") == "lab/coder"
    assert table.paid_as("tiny", "lab/tiny") == "lab/tiny" and table.facts("lab/tiny").priced
    assert table.paid_as("claude-opus-4-5", "claude-haiku-4-5") == "claude-opus-4-5"
    assert table.paid_as("unknown", "") == "unknown"
    assert table.facts("claude-sonnet-5-5-20261001").input_price == 2, "of the list, not of the family"


@pytest.mark.parametrize("model", ["qwen3-coder", "", "gpt-x", "my-claude"])
def test_an_unknown_model_is_asked_for_no_more_than_the_default(model: str) -> None:
    """A higher limit may be refused, after the cut answer has been withdrawn for it."""
    known = claude_facts(model)
    assert max_tokens(known, escalated=True) == max_tokens(known, escalated=False)
    assert known.cost_usd({"input_tokens": 10**6, "output_tokens": 10**6}) == 0 and not known.priced
