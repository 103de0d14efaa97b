"""Models whose tokens cost more in a long request: from a number of input tokens on, all of them do.

From the public price lists as litellm 1.106.2 (MIT) collects them, of 2026-11-26.
"""

from __future__ import annotations

from dataclasses import replace

from ...wire.models import ModelFacts

_CLAUDE, _GPT, _GROK, _HAIKU = (200_000, 2.0, 1.5), (272_000, 2.0, 1.5), (200_000, 2.0, 2.0), (100_000, 5.0, 5.0)
_TIERS: tuple[tuple[str, tuple[int, float, float]], ...] = (  # the first part of a name that fits counts
    *((name, _CLAUDE) for name in ("sonnet-4-5", "sonnet-4.5", "sonnet-4-0", "sonnet-4-2025", "sonnet-4@2025")),
    *((name, _HAIKU) for name in ("haiku-5-5", "haiku-5.5")),
    *((name, _CLAUDE) for name in ("gemini-2.5-pro", "gemini-3-pro", "gemini-3.1-pro", "gemini-pro-latest")),
    *((name, (0, 1.0, 1.0)) for name in ("gpt-5.4-mini", "gpt-5.4-nano")),
    *((name, _GPT) for name in ("gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6")),
    *((name, _GROK) for name in ("grok-4.", "grok-build", "grok-code-fast")),
)


def with_long_price(model: str, known: ModelFacts) -> ModelFacts:
    """Return what is known of a model, with what a long request to it costs."""
    for name, (least, dearer_input, dearer_output) in _TIERS:
        if name in model:
            return replace(known, long_from=least, long_input=dearer_input, long_output=dearer_output)
    return known
