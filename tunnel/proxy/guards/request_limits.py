"""What a request may ask for: which models, and how long an answer.

The limits hold for the bytes that the provider gets. So a body is checked whole before its first byte goes on, and a
body that two parsers could read in two ways is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from ...wire.dataclass import dataclass
from .refusal import Refusal

_NO_RETRY = {"x-should-retry": "false"}


class _Ambiguous(ValueError):
    """An object has two members of the same name."""


@dataclass(frozen=True)
class RequestLimits:
    """`models` are patterns such as `claude-*`, any of which a model's name must match; empty for every model.
    `max_output_tokens` is the largest `max_tokens`, None for no limit."""

    models: Sequence[str] = ()
    max_output_tokens: int | None = None

    def __bool__(self) -> bool:
        return bool(self.models) or self.max_output_tokens is not None

    def check(self, body: bytes, *, answers: bool) -> None:
        """Raise Refusal unless a whole body is allowed. `answers`: the model answers, so a body names the length."""
        try:
            request = json.loads(body, object_pairs_hook=_unambiguous)
        except (ValueError, RecursionError) as error:
            why = "has a member twice" if isinstance(error, _Ambiguous) else "is not JSON"
            raise Refusal(400, f"the request body {why}, so the laptop cannot check it", headers=_NO_RETRY) from None
        if not isinstance(request, dict):
            raise Refusal(400, "the request body is not a JSON object", headers=_NO_RETRY)
        model, tokens = request.get("model"), request.get("max_tokens")
        if self.models and not (isinstance(model, str) and any(fnmatchcase(model, each) for each in self.models)):
            allowed = ", ".join(self.models)
            raise _refusal(f"the laptop's settings do not allow the model {str(model)[:200]!r} here, only {allowed}")
        most = self.max_output_tokens
        if most is not None and answers and not (isinstance(tokens, int) and tokens <= most):
            raise _refusal(f"the laptop's settings allow answers of {most} tokens here, not of {str(tokens)[:20]}")


def _refusal(text: str) -> Refusal:
    return Refusal(403, text, kind="laptop_not_allowed", headers=_NO_RETRY)


def _unambiguous(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Ambiguous
    return members
