"""What a request may ask for: which models, and how long an answer.

The limits hold for the bytes that the provider gets. So a body is checked whole before its first byte goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ...wire.dataclass import dataclass
from .refusal import Refusal
from .request_body import model_of, read_request


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
        request = read_request(body)
        model, tokens = model_of(request), request.get("max_tokens")
        if self.models and not (model and any(fnmatchcase(model, each) for each in self.models)):
            allowed, named = ", ".join(self.models), str(request.get("model"))[:200]
            raise _refusal(f"the laptop's settings do not allow the model {named!r} here, only {allowed}")
        most = self.max_output_tokens
        if most is not None and answers and not (isinstance(tokens, int) and tokens <= most):
            raise _refusal(f"the laptop's settings allow answers of {most} tokens here, not of {str(tokens)[:20]}")


def _refusal(text: str) -> Refusal:
    return Refusal(403, text, kind="laptop_not_allowed", headers={"x-should-retry": "false"})
