"""What a client demands of each turn beyond an answer: a value that fits its schema, and a limit on the cost."""

from __future__ import annotations

from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import Effect, ToolTraits

from ...tools.contract import Tool, ToolContext, ToolResult, declared
from ..state import Ending, Terminal

Json = dict[str, Any]

MAX_TRIES = 5
"""How often the model may stop without a fitting value, or give one that does not fit, in one turn."""

NAME = "StructuredOutput"
_ASK = f"Finish now: call {NAME} once, with the result in the form that its schema describes."
_ABOUT = (
    "Give the final result of the task as a value that fits the schema. The program that asked reads this value and "
    "nothing else. Call it exactly once, when the work is done."
)


class StructuredOutput(Tool):
    """The tool by which the model gives the value. One object serves all turns of an agent, one after the other."""

    def __init__(self, schema: Json) -> None:
        self.declaration = declared(ToolTraits(NAME, Effect.NONE, main_only=True), _ABOUT, schema)
        self.value: Json | None = None
        self._tries = 0

    def begin_turn(self) -> None:
        self.value, self._tries = None, 0

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        """Take the value, which fits the schema."""
        self.value = tool_input
        return ToolResult("The result was taken.")

    def missed(self) -> str | Ending:
        """The model has stopped without a value, or given one that does not fit. Return what to tell it, or how the
        turn ends."""
        self._tries += 1
        if self._tries < MAX_TRIES:
            return _ASK
        return Ending(Terminal.NO_STRUCTURED_OUTPUT, errors=(f"No fitting value after {MAX_TRIES} tries",))


@dataclass(frozen=True)
class Budget:
    """`limit` is what a client allows, `total` the cost of the session at which that is spent, in dollars."""

    limit: float
    total: float

    def rest(self, cost: float) -> Budget:
        """Return what a sub-agent may cost that starts when the session has cost `cost`."""
        return Budget(self.limit, max(0.0, self.total - cost))

    def spent(self, cost: float) -> Ending | None:
        """Return how the turn ends when the session has cost `cost`, None if there is money left."""
        if cost < self.total:
            return None
        limit = f"{self.limit:.9f}".rstrip("0").rstrip(".")
        return Ending(Terminal.BUDGET_EXHAUSTED, errors=(f"Reached maximum budget (${limit})",))
