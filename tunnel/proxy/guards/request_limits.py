"""What a request may ask for: which models, and how long an answer.

The limits hold for the bytes that the provider gets. So a body is checked whole before its first byte goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from ...wire.dataclass import dataclass
from .refusal import Refusal
from .request_body import Json, read_request


@dataclass(frozen=True)
class RequestLimits:
    """`models` are patterns such as `claude-*`, any of which a model's name must match; empty for every model.
    `max_output_tokens` is the largest `max_tokens`, None for no limit."""

    models: Sequence[str] = ()
    max_output_tokens: int | None = None

    def __bool__(self) -> bool:
        return bool(self.models) or self.max_output_tokens is not None

    def allows(self, model: object) -> bool:
        """Return whether a model may be asked."""
        if not self.models:
            return True
        return isinstance(model, str) and bool(model) and any(fnmatchcase(model, each) for each in self.models)

    def check(self, body: bytes, *, answers: bool) -> None:
        """Raise Refusal unless a whole body is allowed. `answers`: the model answers, so a body names the length."""
        request = read_request(body)
        others = list(_others(request))
        for model in (request.get("model"), *(each.get("model") for each in others)):
            if not self.allows(model):
                allowed, named = ", ".join(self.models), str(model)[:200]
                raise _refusal(f"the laptop's settings do not allow the model {named!r} here, only {allowed}")
        most = self.max_output_tokens
        lengths = [request.get("max_tokens"), *(each["max_tokens"] for each in others if each.get("max_tokens"))]
        for tokens in lengths if answers else ():
            if most is not None and not (isinstance(tokens, int) and tokens <= most):
                raise _refusal(f"the laptop's settings allow answers of {most} tokens here, not of {str(tokens)[:20]}")


def _others(request: Json) -> Iterator[Json]:
    """Yield what names another model that may answer: those that take over, and tools that ask one. What does not name
    it (`"fallbacks": "default"`) is yielded as an object without a model."""
    for member in ("fallbacks", "models"):
        found = request.get(member)
        for each in found if isinstance(found, list) else [found] if found else []:
            yield each if isinstance(each, dict) else {"model": each if member == "models" else None}
    tools = request.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and "model" in tool:
            yield tool


def _refusal(text: str) -> Refusal:
    return Refusal(403, text, kind="laptop_not_allowed", headers={"x-should-retry": "false"})
