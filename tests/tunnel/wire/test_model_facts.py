"""Which words can be a model: all ids that a provider may know, and no slip of the fingers."""

from __future__ import annotations

import pytest

from ccb.tunnel.wire.model_facts import ALIASES, may_be_model


@pytest.mark.parametrize(
    "name",
    [
        *ALIASES, "claude-opus-4-5", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5[1m]", "claude-opus-4@20250514",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic/claude-opus-4.1", "openrouter/auto", "gpt-4o", "o3",
        "deepseek-chat",
        "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude", "qwen2.5-coder:7b",
    ],
)  # fmt: skip
def test_ids_of_any_provider_may_be_models(name: str) -> None:
    assert may_be_model(name)


def test_a_plain_word_is_no_model() -> None:
    for name in ("nonsense", "opsu", "Opus", "", "gpt-four 4", "-4", "4\n", "\x1b[2J4", "x" * 200 + "4"):
        assert not may_be_model(name), name
