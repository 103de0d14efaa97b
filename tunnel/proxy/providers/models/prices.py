"""What models cost where neither the provider's list nor the settings say it: US dollars for a million tokens of
input, of output, and of input that is read from a cache.

This extract is of 2026-11-26, from the public price lists as litellm (MIT) collects them.
"""

from __future__ import annotations

_PRICES: dict[str, tuple[float, float, float]] = {
    "claude-fable-5": (10, 50, 1),
    "claude-fable-5-1": (10, 50, 0.25),
    "claude-haiku-5-5": (0.1, 0.5, 0.01),
    "claude-mythos": (10, 50, 1),
    "claude-mythos-5-1": (10, 50, 0.25),
    "claude-opus-5-5": (4, 20, 0.2),
    "claude-sonnet-5": (2, 10, 0.2),
    "claude-sonnet-5-5": (2, 10, 0.1),
    "deepseek-chat": (0.28, 0.42, 0.028),
    "deepseek-flash": (0.3, 1.2, 0.006),
    "deepseek-reasoner": (0.28, 0.42, 0.028),
    "deepseek-v4-flash": (0.3, 1.2, 0.006),
    "deepseek-v4-pro": (1.32, 3.96, 0.044),
    "gemini-2.5-flash": (0.3, 2.5, 0.03),
    "gemini-2.5-flash-lite": (0.1, 0.4, 0.01),
    "gemini-2.5-pro": (1.25, 10, 0.125),
    "gemini-3-flash": (0.5, 3, 0.05),
    "gemini-3.1-flash-lite": (0.25, 1.5, 0.025),
    "gemini-3.1-pro": (2, 12, 0.2),
    "gemini-3.5-flash": (1.5, 9, 0.15),
    "gemini-3.5-flash-lite": (0.3, 2.5, 0.03),
    "gemini-3.6-flash": (0.75, 3.75, 0.075),
    "gemini-3.7-flash": (0.75, 3.75, 0.075),
    "gemini-3.8-flash": (0.75, 3.75, 0.075),
    "gpt-4.1": (2, 8, 0.5),
    "gpt-4.1-mini": (0.4, 1.6, 0.1),
    "gpt-4.1-nano": (0.1, 0.4, 0.025),
    "gpt-4o": (2.5, 10, 1.25),
    "gpt-4o-mini": (0.15, 0.6, 0.075),
    "gpt-5": (1.25, 10, 0.125),
    "gpt-5-mini": (0.25, 2, 0.025),
    "gpt-5-nano": (0.05, 0.4, 0.005),
    "gpt-5-pro": (15, 120, 15),
    "gpt-5.1": (1.25, 10, 0.125),
    "gpt-5.1-codex-mini": (0.25, 2, 0.025),
    "gpt-5.2": (1.75, 14, 0.175),
    "gpt-5.2-pro": (21, 168, 21),
    "gpt-5.3": (1.75, 14, 0.175),
    "gpt-5.4": (2.5, 15, 0.25),
    "gpt-5.4-mini": (0.75, 4.5, 0.075),
    "gpt-5.4-nano": (0.2, 1.25, 0.02),
    "gpt-5.4-pro": (30, 180, 30),
    "gpt-5.5": (5, 30, 0.5),
    "gpt-5.5-pro": (30, 180, 30),
    "gpt-5.6": (4, 20, 0.4),
    "gpt-5.6-luna": (0.2, 1.2, 0.02),
    "gpt-5.6-terra": (2, 12, 0.2),
    "grok-4.20": (1.25, 2.5, 0.2),
    "grok-4.3": (1.25, 2.5, 0.2),
    "grok-4.5": (2, 6, 0.3),
    "grok-4.6": (2, 6, 0.5),
    "grok-4.7": (2, 6, 0.5),
    "grok-build": (1, 2, 0.2),
    "grok-code-fast": (1, 2, 0.2),
    "o3": (2, 8, 0.5),
    "o3-mini": (1.1, 4.4, 0.55),
    "o3-pro": (20, 80, 20),
    "o4-mini": (1.1, 4.4, 0.275),
}
_PREVIEWS = ("-preview", "-latest")


def known_prices(model: str) -> dict[str, object]:
    """Return the prices of a model as traits, {} if they are not known. A vendor in front of the name, and a date or a
    word for previews behind it, do not count; any other ending is another model, whose price is not known."""
    name = model.rsplit("/", 1)[-1].lower()
    for ending in _PREVIEWS:
        name = name.removesuffix(ending)
    head, dash, last = name.rpartition("-")
    while dash and last.isdecimal() and name not in _PRICES:
        name = head
        head, dash, last = name.rpartition("-")
    found = _PRICES.get(name)
    return {} if found is None else dict(zip(("input_price", "output_price", "cache_read_price"), found, strict=True))
