"""Applies the limits that a client sets (`run_limits`) to one turn."""

from __future__ import annotations

from .. import messages
from ..deps import AgentConfig
from ..recorder import Recorder
from ..state import Ending, Terminal
from ..tool_calls.call import CallOutcome
from ..tool_calls.executor import ToolCall
from ..usage import Ledger


class Demands:
    """The demands on one turn."""

    def __init__(self, config: AgentConfig, ledger: Ledger, recorder: Recorder) -> None:
        self._structured = config.structured
        self._budget = config.budget
        self._ledger = ledger
        self._recorder = recorder
        self._given_up: Ending | None = None
        if self._structured is not None:
            self._structured.begin_turn()

    def called(self, call: ToolCall, outcome: CallOutcome) -> None:
        """Note the outcome of a tool call: the structured value may not fit."""
        if self._structured is not None and call.tool is self._structured and outcome.result.is_error:
            missed = self._structured.missed()
            self._given_up = missed if isinstance(missed, Ending) else None

    def met(self, text: str) -> Ending | None:
        """Return how the turn ends because the model has given the structured value. `text` is its answer."""
        if self._structured is None or self._structured.value is None:
            return None
        return Ending(Terminal.COMPLETED, text=text, structured=self._structured.value)

    def broken(self) -> Ending | None:
        """Return how the turn ends because a limit is reached, None if the model may be called again."""
        if self._given_up is not None or self._budget is None:
            return self._given_up
        return self._budget.spent(self._ledger.total_cost_usd)

    def at_stop(self, ending: Ending) -> Ending | None:
        """Return how a turn ends in which the model has stopped; None if it still owes the value, and was told so."""
        broken = self.broken()
        if broken is not None or self._structured is None or ending.terminal is not Terminal.COMPLETED:
            return broken or ending
        missed = self._structured.missed()
        if isinstance(missed, Ending):
            return missed
        self._recorder.message(messages.user_text(missed, synthetic=True))
        return None
