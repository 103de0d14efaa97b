"""Limits and demands of a client on a turn: structured output, a budget, a token target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import Effect, ToolTraits

from ..tools.tool_contract import Tool, ToolContext, ToolResult, declared
from .turn_state import EndReason, Prompt, TurnEnding

Json = dict[str, Any]

MAX_TRIES = 5  # in one turn, to give a fitting value
NAME = "StructuredOutput"
_ASK = f"Finish now: call {NAME} once, with the result in the form that its schema describes."
_ABOUT = (
    "Give the final result of the task as a value that fits the schema. The program that asked reads this value and "
    "nothing else. Call it exactly once, when the work is done."
)


class StructuredOutput(Tool):
    """The tool by which the model gives the value that a client's schema wants."""

    def __init__(self, schema: Json) -> None:
        self.declaration = declared(ToolTraits(NAME, Effect.NONE, main_only=True), _ABOUT, schema)
        self.value: Json | None = None
        self._tries = 0

    def begin_turn(self) -> None:
        self.value, self._tries = None, 0

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        self.value = tool_input
        return ToolResult("The result was taken.")

    def missed(self) -> str | TurnEnding:
        """Return what to tell a model that has not given a fitting value, or how the turn ends."""
        self._tries += 1
        if self._tries < MAX_TRIES:
            return _ASK
        return TurnEnding(EndReason.NO_STRUCTURED_OUTPUT, errors=(f"No fitting value after {MAX_TRIES} tries",))


@dataclass(frozen=True)
class Budget:
    """`limit` is what a client allows, `total` the session's cost at which that is spent, in dollars."""

    limit: float
    total: float

    def rest(self, cost: float) -> Budget:
        return Budget(self.limit, max(0.0, self.total - cost))

    def spent(self, cost: float) -> TurnEnding | None:
        if cost < self.total:
            return None
        limit = f"{self.limit:.9f}".rstrip("0").rstrip(".")
        return TurnEnding(EndReason.BUDGET_EXHAUSTED, errors=(f"Reached maximum budget (${limit})",))


_TARGET = re.compile(r"\+(\d{1,6}(?:\.\d{1,3})?)(k|m)", re.IGNORECASE)
_UNITS = {"k": 1_000, "m": 1_000_000}
_REACHED = 0.9  # of the target
_LITTLE = 500  # tokens of output between two stops
_MIN_NUDGES = 3  # before little output ends the work


class TokenTarget:
    """The target of one turn, in tokens of output; 0 for none."""

    def __init__(self) -> None:
        self.tokens = 0
        self._nudges = 0
        self._last = 0
        self._little = 0  # stops in a row with little output

    def take(self, prompts: Sequence[Prompt]) -> int:
        """Use the target in prompts that join the turn. Return it, 0 if they name none."""
        said = [each.blocks for each in prompts if each.origin is None and not each.verbatim]
        texts = [" ".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text") for blocks in said]
        found = max((target_in(text.split()) for text in texts), default=0)
        self.tokens = found or self.tokens
        return found

    def nudge(self, used: int) -> str:
        """Return what to tell a model that has stopped after `used` tokens, "" if it may stop."""
        self._little = self._little + 1 if used - self._last < _LITTLE else 0
        self._last = used
        if used >= _REACHED * self.tokens or self.is_given_up:
            return ""
        self._nudges += 1
        share = round(100 * used / self.tokens)
        return (
            f"You have used {used:,} of the {self.tokens:,} tokens that the user wants to be spent here ({share} %). "
            "Go on with the work, and do not sum up."
        )

    @property
    def is_given_up(self) -> bool:
        """Whether the model has done little after it was told to go on."""
        return self._nudges >= _MIN_NUDGES and self._little >= 2


def target_in(words: Sequence[str]) -> int:
    for word in (*words[:1], *words[-1:]):
        match = _TARGET.fullmatch(word.rstrip(".!"))
        if match:
            return int(float(match[1]) * _UNITS[match[2].lower()])
    return 0
