"""Which model the worker asks for, for how many tokens, and with which beta features."""

from __future__ import annotations

from ccb.tunnel.wire.models import CCB_NAMES, DEFAULT_MAX_TOKENS, LONG_CONTEXT, ModelFacts, ModelNames

SMALL = "small"
"""Stands for the small model of an agent, where a name of a model is expected."""
ESCALATED_MAX_TOKENS = 64_000
LONG_CONTEXT_BETA = "context-1m-2025-08-07"


def resolve_model(name: str | None, names: ModelNames = CCB_NAMES) -> str:
    """Return the model id for an alias or an id; the default model for None and "". `names` are those of a session."""
    if name and name.endswith(LONG_CONTEXT):
        return resolve_model(name[: -len(LONG_CONTEXT)], names) + LONG_CONTEXT
    return names.resolved(name or "default")


def small_model(model: str, chosen: str, names: ModelNames = CCB_NAMES) -> str:
    """Return the model that answers small questions of an agent that uses `model`. `chosen` is what the laptop says,
    "" if nothing: then a model of an unknown family has no known small one, so it answers itself."""
    return chosen or (names.resolved("haiku") if model.startswith("claude-") else model)


def betas_of(model: str) -> tuple[str, ...]:
    """Return the beta features that the name of a model asks for."""
    return (LONG_CONTEXT_BETA,) if model.endswith(LONG_CONTEXT) else ()


def max_tokens(known: ModelFacts, *, escalated: bool) -> int:
    """Return the output limit to ask for, in tokens. `escalated`: the answer was cut at the default limit before."""
    return min(ESCALATED_MAX_TOKENS if escalated else DEFAULT_MAX_TOKENS, known.max_output)
