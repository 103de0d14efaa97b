"""How much a model thinks: the fields of a request for its effort and its thinking, by what each model accepts.

For a model of another provider they say what is wanted in the words of the Messages API, as far as the laptop has told
that the model can do it; the provider's dialect says it in its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.reasoning import EFFORTS
from ccb.tunnel.wire.models import ModelFacts
from ccb.tunnel.wire.options import SessionOptions

Json = dict[str, Any]

_VERSION = re.compile(r"claude-(?:(?:opus|sonnet|haiku)-)?(\d+)(?:[-.](\d)(?!\d))?")
_OTHER = (0, 0)  # the version of a model that is not a Claude
_LEVELS = ("none", "minimal", *EFFORTS)
_MIN_BUDGET = 1_024  # the API refuses less
_ABOVE_BUDGET = 1_024  # tokens for the answer itself
_EFFORT_BETA = "effort-2025-11-24"
_BUDGET_BETA = "task-budgets-2026-03-13"
_INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"


@dataclass(frozen=True)
class ReasoningFields:
    """What goes into a request: fields of the body, its output limit, and the beta features of its headers."""

    body: Json
    max_tokens: int
    betas: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reasoning:
    """`effort` is low, medium, high, xhigh or max, None for the model's own. `thinking_tokens` is the budget for
    thinking; 0 turns it off, None leaves it to the model. `display` says how thinking is shown (summarized, omitted),
    `task_budget` how many tokens the model is told that its task may take. `betas` are features of the API that the
    client wants besides. `most` is the longest answer that the laptop allows, in tokens."""

    effort: str | None = None
    thinking_tokens: int | None = None
    display: str | None = None
    task_budget: int | None = None
    betas: tuple[str, ...] = ()
    most: int | None = None

    @staticmethod
    def of(options: SessionOptions) -> Reasoning:
        """Return what a client's options say."""
        return Reasoning(
            options.effort,
            options.max_thinking_tokens,
            options.thinking_display,
            options.task_budget,
            tuple(options.betas),
            options.max_output_tokens,
        )

    def allowed(self, tokens: int) -> int:
        """Return how long an answer may be that wants so many tokens."""
        return min(tokens, self.most or tokens)

    def fields(self, model: str, known: ModelFacts, limit: int, *, may_think: bool) -> ReasoningFields:
        """Return the fields of a request to `model` for an answer of at most `limit` tokens. `may_think`: the history
        allows that the model thinks now (see `Conversation.may_think`)."""
        body: Json = {}
        betas = list(self.betas)
        version = _version(model)
        effort = effort_of(model, known, self.effort)
        if effort:
            body["output_config"] = {"effort": effort}
            if version < (4, 6):
                betas.append(_EFFORT_BETA)
        if self.task_budget:
            budget = {"type": "tokens", "total": self.task_budget}
            body["output_config"] = {**body.get("output_config", {}), "task_budget": budget}
            betas.append(_BUDGET_BETA)
        tokens = self.thinking_tokens
        if tokens is not None and version >= (4, 6):
            body["thinking"] = {"type": "adaptive" if tokens else "disabled"}
        elif tokens == 0 and version == _OTHER and can_think(model, known):
            body["thinking"] = {"type": "disabled"}
        elif tokens and can_think(model, known) and (may_think or version == _OTHER):
            limit = min(self.allowed(known.max_output), max(limit, tokens + _ABOVE_BUDGET))
            body["thinking"] = {
                "type": "enabled",
                "budget_tokens": max(_MIN_BUDGET, min(tokens, limit - _ABOVE_BUDGET)),
            }
            if version >= (4, 0):
                betas.append(_INTERLEAVED_BETA)
        if self.display and body.get("thinking", {}).get("type") in ("adaptive", "enabled"):
            body["thinking"]["display"] = self.display
        return ReasoningFields(body, limit, tuple(betas))


def effort_of(model: str, known: ModelFacts, wanted: str | None) -> str:
    """Return the level of effort that `model` is asked for: the one that is wanted, or the highest below it that the
    model knows. Return "" if none is wanted or the model has no levels."""
    version = _version(model)
    if wanted and version == _OTHER:
        levels = [each for each in _LEVELS if each in (known.efforts or ())]
        below = [each for each in levels if _LEVELS.index(each) <= _LEVELS.index(wanted)]
        return (below or levels or [""])[-1 if below else 0]
    if not wanted or (version < (4, 6) and "opus-4-5" not in model and "opus-4.5" not in model):
        return ""
    if (wanted == "max" and version < (4, 6)) or (wanted == "xhigh" and version < (4, 7)):
        return "high"
    return wanted


def thinks(known: ModelFacts, asked: Mapping[str, Any]) -> bool:
    """Return whether a model may think for minutes in silence: it is asked to (`asked` are the fields of
    `ReasoningFields.body`), or does so by itself."""
    kind = (asked.get("thinking") or {}).get("type")
    return kind != "disabled" and (kind is not None or known.efforts is not None)


def can_think(model: str, known: ModelFacts) -> bool:
    """Return whether `model` is known to think."""
    return _version(model) >= (3, 7) or known.efforts is not None


def _version(model: str) -> tuple[int, int]:
    """Return the version in the id of a Claude model, _OTHER for any other model."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else _OTHER
