"""What clients may change about how much the model thinks, and the permission rules that the person sets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ccb.tunnel.wire.kinds.commands import CHANGE_RULES
from ccb.tunnel.wire.kinds.reasoning import LEARN_MODELS, SET_EFFORT, SET_MAX_THINKING_TOKENS
from ccb.tunnel.wire.requests import RequestRefused

from ...model.reasoning import can_think, effort_of
from ..broker import Handled
from ..session import Session

Json = dict[str, Any]


def register_steering(session: Session) -> None:
    """Register the handlers with the session's broker. Changes hold from the next turn on, and over restarts."""
    session.broker.register(SET_EFFORT, lambda level: _set_effort(session, level))
    session.broker.register(SET_MAX_THINKING_TOKENS, lambda tokens: _set_tokens(session, tokens))
    session.broker.register(LEARN_MODELS, lambda known: _learn_models(session, known))
    session.broker.register(CHANGE_RULES, lambda updates: _change_rules(session, updates))


def _change_rules(session: Session, updates: list[Json]) -> Handled:
    problems = session.agent.config.permissions.apply(updates)
    if problems:
        raise RequestRefused("; ".join(problems))
    return Handled({})


def _learn_models(session: Session, known: Json) -> Handled:
    session.learn_models(known["models"], known["thinking"])
    return Handled({})


def _set_effort(session: Session, level: str | None) -> Handled:
    """Answer with the level that the present model is asked for, "" if it has no levels."""
    session.reason(replace(session.agent.config.reasoning, effort=level))
    model = session.agent.model
    return Handled({"effort": level, "applied": effort_of(model, session.models.facts(model), level)})


def _set_tokens(session: Session, tokens: int | None) -> Handled:
    """Answer whether the present model is known to think."""
    session.reason(replace(session.agent.config.reasoning, thinking_tokens=tokens))
    model = session.agent.model
    return Handled({"max_thinking_tokens": tokens, "can_think": can_think(model, session.models.facts(model))})
