"""Limits and prices of models, by whatever name a provider has them."""

from __future__ import annotations

import pytest

from ccb.remote.model.models import max_tokens, resolve_model
from ccb.tunnel.wire.models import cost_usd, facts


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
    assert facts(model).input_price == price
    assert facts(model).max_output == output
    assert max_tokens(model, escalated=True) == output


def test_an_alias_may_ask_for_the_long_window() -> None:
    assert resolve_model("sonnet[1m]") == "claude-sonnet-4-5[1m]" and facts(resolve_model("opus[1m]")).input_price == 5


@pytest.mark.parametrize("model", ["qwen3-coder", "", "gpt-x", "my-claude"])
def test_an_unknown_model_is_asked_for_no_more_than_the_default(model: str) -> None:
    """A higher limit may be refused, after the cut answer has been withdrawn for it."""
    assert max_tokens(model, escalated=True) == max_tokens(model, escalated=False)
    assert cost_usd(model, {"input_tokens": 10**6, "output_tokens": 10**6}) == 0
