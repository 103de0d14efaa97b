"""The agent of a session: one conversation, one turn at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ccb.tunnel.wire.records import ModelRecord

from ..model.models import resolve_model
from ..ports import PromptSource
from ..tools.contract import Tool
from .conversation import Conversation
from .deps import AgentDeps, Prompt
from .tool_runner import DenialCounter
from .turn import AgentState, Turn
from .usage import Ledger

Json = dict[str, Any]


class Agent:
    """`conversation` and `ledger` are the projections of the session's journal (`from_records`). Tools that the permission
    engine hides are left out; the model's tool list changes only when another command line asks for that (`relaunch`)."""

    def __init__(self, deps: AgentDeps, conversation: Conversation, ledger: Ledger) -> None:
        self._deps = deps
        self._conversation = conversation
        self._model = resolve_model(conversation.model or deps.model)
        self._state = AgentState(conversation, ledger, _offered(deps), lambda: self._model, DenialCounter())
        self._turn: Turn | None = None
        self._relaunched = False  # what every request starts with is made again for the next turn

    @property
    def model(self) -> str:
        """The model id that the next model call uses."""
        return self._model

    @property
    def running(self) -> bool:
        return self._turn is not None

    def set_model(self, name: str | None) -> None:
        """Use another model from the next model call on; None is the session's own. Thinking of the old one is dropped."""
        model = resolve_model(name or self._deps.model)
        if model != self._model:
            self._model = model
            self._conversation.apply(self._deps.emitter.emit(ModelRecord(model)))

    def relaunch(
        self,
        *,
        model: str | None,
        max_turns: int | None,
        partial_messages: bool,
        api_key_source: str,
        prompts: PromptSource | None,
    ) -> None:
        """Another client process drives; counts from the next turn on. `model` is the session's own from now on, but not
        chosen by this; `prompts` replace those there are."""
        self._relaunched |= prompts is not None or list(_offered(self._deps)) != list(self._state.tools)
        self._deps = replace(
            self._deps,
            model=model,
            max_turns=max_turns,
            partial_messages=partial_messages,
            api_key_source=api_key_source,
            prompts=prompts or self._deps.prompts,
        )

    def interrupt(self) -> bool:
        """End the running turn. Idempotent; False when none is running."""
        if self._turn is None:
            return False
        self._turn.interrupt()
        return True

    async def run_turn(self, prompts: Sequence[Prompt]) -> Json:
        """Run one turn and return its `result` message, which has been emitted and committed like all others. Raises when
        the journal fails, and CancelledError (with no result, tools stopped) when the session is shut down."""
        if self._turn is not None:
            raise RuntimeError("a turn is running")
        if self._relaunched:
            self._relaunched = False
            self._state.tools, self._state.prefix = _offered(self._deps), None
        self._turn = Turn(self._deps, self._state)
        try:
            return await self._turn.run(prompts)
        finally:
            self._turn = None


def _offered(deps: AgentDeps) -> dict[str, Tool]:
    """The tools that the model is told of."""
    return {tool.name: tool for tool in deps.tools if deps.permissions.visible(tool.name)}
