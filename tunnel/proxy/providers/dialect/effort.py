"""How much a model shall think, in levels of effort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_BUDGETS = ((1_024, "minimal"), (2_048, "low"), (4_096, "medium"), (8_192, "high"), (16_384, "xhigh"))


def wanted_effort(asked: Json) -> str:
    """Return the level that a request asks for; "" if it leaves that to the model."""
    thinking, config = asked.get("thinking"), asked.get("output_config")
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        return "none"
    effort = config.get("effort") if isinstance(config, dict) else None
    if effort in LEVELS:
        return str(effort)
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if isinstance(budget, int):
        return next((level for most, level in _BUDGETS if budget < most), "max" if budget > 31_999 else "xhigh")
    return ""


def wants_thinking(asked: Json) -> bool:
    """Return whether a request asks to see what the model thinks."""
    thinking = asked.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") in ("enabled", "adaptive")


def clamped(level: str, known: Sequence[str]) -> str:
    """Return the level of `known` that is nearest: the highest below, or the lowest of all. `known` is in rising
    order."""
    if not level or not known:
        return ""
    below = [each for each in known if LEVELS.index(each) <= LEVELS.index(level)]
    return below[-1] if below else known[0]
