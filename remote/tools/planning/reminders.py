"""What the model is told of plan mode, in the user messages: when it begins, at each prompt while it lasts, when it is
over, and the plan itself after a compaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Callable

from ...context.reminders import Occasion
from ..plan_file import PlanFile
from .plan_mode import PLAN

_LEAVE = "When the plan is complete, call ExitPlanMode, which shows it to the user; before that ask what is open."
_ANSWER = "Nobody can be asked in this session: when the plan is complete, give it as your answer and end your turn."
_WHAT = (
    "Say in the plan what will be changed and where, in which order, and how it will be checked. Be short enough to be"
    " read."
)
_OVER = "Plan mode is over: you may change files and run commands again, as far as the permissions go."


class PlanReminders:
    """A source of reminders. `mode` returns the permission mode, `can_ask` whether the person can be asked,
    `instructions` what a client says that a plan must be like."""

    def __init__(
        self,
        plan: PlanFile,
        mode: Callable[[], str],
        can_ask: Callable[[], bool],
        instructions: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._plan = plan
        self._mode = mode
        self._can_ask = can_ask
        self._instructions = instructions
        self._told = False  # the model knows that plan mode is on

    def __call__(self, occasion: Occasion) -> Iterable[str]:
        on = self._mode() == PLAN
        if occasion is Occasion.COMPACTED:
            self._told = False
            yield from self._kept()
        if on and not self._told:
            yield self._rules()
        elif on and occasion is Occasion.PROMPT:
            yield f"Plan mode is still on: change nothing{f' but {self._plan.path}' if self._plan.path else ''}."
        elif self._told and not on:
            yield _OVER
        self._told = on

    def _kept(self) -> Iterable[str]:
        plan = self._plan.read()
        if plan:
            yield f"The plan of this session, in {self._plan.path}:\n\n{plan}"

    def _rules(self) -> str:
        path = self._plan.path
        where = "Keep the plan in your mind; there is no plan file."
        if path:
            state = "It holds an earlier plan: read it first." if self._plan.read() else "It does not exist yet."
            where = f"Write the plan to {path}, the only file that you may change (Write, Edit). {state}"
        return "\n".join(
            (
                "Plan mode is on. Look around and plan; change nothing, and run no command that does, until the user"
                " has approved the plan. This goes before any other instruction.",
                where,
                self._instructions() or _WHAT,
                _LEAVE if self._can_ask() else _ANSWER,
            )
        )
