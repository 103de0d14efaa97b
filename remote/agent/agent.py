"""The agent of a session: one conversation, one turn at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..conversation import Conversation
from ..model.models import resolve_model
from ..ports import PromptSource
from .calls import DenialCounter
from .ledger import Ledger
from .ports import Prompt, Surroundings
from .turn import Session, Turn

Json = dict[str, Any]


class Agent:
    """`conversation` and `ledger` are the projections of the session's journal (`from_events`). Tools that the permission
    engine hides are left out once and for all: the model's tool list never changes within a session."""

    def __init__(self, around: Surroundings, conversation: Conversation, ledger: Ledger) -> None:
        self._around = around
        self._conversation = conversation
        self._model = resolve_model(conversation.model or around.model)
        tools = {tool.name: tool for tool in around.tools if around.permissions.visible(tool.name)}
        self._session = Session(conversation, ledger, tools, lambda: self._model, DenialCounter())
        self._turn: Turn | None = None

    @property
    def model(self) -> str:
        """The model id that the next model call uses."""
        return self._model

    @property
    def running(self) -> bool:
        return self._turn is not None

    def set_model(self, name: str | None) -> None:
        """Use another model from the next model call on; None is the session's own. Thinking of the old one is dropped."""
        model = resolve_model(name or self._around.model)
        if model != self._model:
            self._model = model
            self._around.emitter.fact("model", {"model": model})
            self._conversation.apply("model", {"model": model})

    def relaunch(
        self, *, max_turns: int | None, partial_messages: bool, api_key_source: str, prompts: PromptSource | None
    ) -> None:
        """Another client process drives; counts from the next turn on. `prompts` replace those there are."""
        self._around = replace(
            self._around,
            max_turns=max_turns,
            partial_messages=partial_messages,
            api_key_source=api_key_source,
            prompts=prompts or self._around.prompts,
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
        self._turn = Turn(self._around, self._session)
        try:
            return await self._turn.run(prompts)
        finally:
            self._turn = None
