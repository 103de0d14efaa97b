"""How much the model thinks: the record in the journal, and the requests of clients."""

from __future__ import annotations

from typing import ClassVar

from ..dataclass import dataclass
from ..frames import Json
from ..requests import RequestKind, RequestRefused, client_kind

EFFORTS = ("low", "medium", "high", "xhigh", "max")
DEFAULT_THINKING_TOKENS = 10_000
"""The budget of thinking that is switched on without a number."""
_MAX_TAUGHT = 1_000


@dataclass(frozen=True)
class ReasoningRecord:
    """`reasoning`: the next turns use this effort ("" for the model's own) and this budget for thinking (0 for none, -1
    to leave it to the model)."""

    kind: ClassVar[str] = "reasoning"
    effort: str
    thinking_tokens: int


def _read_effort(fields: Json) -> str | None:
    level = fields.get("effort")
    if level is not None and level not in EFFORTS:
        raise RequestRefused(f"the effort must be one of {', '.join(EFFORTS)}")
    return level


def _read_tokens(fields: Json) -> int | None:
    tokens = fields.get("max_thinking_tokens")
    if tokens is not None and (not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0):
        raise RequestRefused("max_thinking_tokens must be a number of tokens or null")
    return tokens


def _read_models(fields: Json) -> Json:
    known = {name: fields.get(name) for name in ("models", "thinking")}
    if not all(isinstance(each, dict) and len(each) <= _MAX_TAUGHT for each in known.values()):
        raise RequestRefused("models and thinking must be objects")
    return known


LEARN_MODELS: RequestKind[Json, Json] = client_kind("learn_models", _read_models, lambda known: known)
"""Before another model is chosen: what the laptop knows of it, as `model_facts` and `thinking_models` of the
options."""
SET_EFFORT: RequestKind[str | None, Json] = client_kind("set_effort", _read_effort, lambda level: {"effort": level})
SET_MAX_THINKING_TOKENS: RequestKind[int | None, Json] = client_kind(
    "set_max_thinking_tokens", _read_tokens, lambda tokens: {"max_thinking_tokens": tokens}
)
