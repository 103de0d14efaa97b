"""An agent: one conversation with a model, one turn at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL
from ccb.tunnel.wire.journal_records import ModelRecord

from ..context.reminders import DeferredNames
from ..model.model_request import resolve_model
from ..tools.todo import TodoReminder
from ..tools.tool_contract import Tool
from .agent_config import AgentConfig, AgentDeps
from .agent_histories import AgentLog, Ledger
from .conversation import Conversation
from .model_calls import new_prefix, side_answer
from .turn import Turn
from .turn_state import AgentState, Prompt

if TYPE_CHECKING:
    from .context_report import ContextReport

Json = dict[str, Any]


class Agent:
    """The tools that the model is offered change only at the start of a turn, so that the request prefix stays the
    same."""

    def __init__(self, config: AgentConfig, deps: AgentDeps, conversation: Conversation, ledger: Ledger) -> None:
        self._config = config
        self._next = config  # takes effect at the next turn
        self._deps = deps
        self.reminders = deps.reminders
        self.ledger = ledger
        self.hooks = deps.hooks
        self.commands = deps.commands
        model = resolve_model(conversation.model or config.models.model, config.models.names)
        conversation.use(model)
        self._registered = config.tools.begin_turn()  # the registry's tools at the start of the last turn
        tools, listed = config.callable_tools(), self._listed_tools(config)
        self._state = AgentState(conversation, ledger, deps.models, model, tools, listed)
        self._turn: Turn | None = None
        deps.reminders.follow(TodoReminder(lambda: self._config.context.todos))
        deps.reminders.follow(DeferredNames(lambda: list(self._config.deferred_tools())))

    @property
    def config(self) -> AgentConfig:
        """The configuration of the next turn."""
        return self._next

    @property
    def conversation(self) -> Conversation:
        return self._state.conversation

    @property
    def model(self) -> str:
        return self._state.model

    @property
    def running(self) -> bool:
        return self._turn is not None

    @property
    def online(self) -> bool:
        return self._deps.link_up_since() is not None

    @property
    def interrupted(self) -> bool:
        return self._turn is not None and self._turn.interrupted

    async def compact(self, hint: str) -> str:
        return await self._running().compact(hint)

    async def clear(self) -> None:
        await self._running().clear()

    def _running(self) -> Turn:
        if self._turn is None:
            raise RuntimeError("no turn is running")
        return self._turn

    async def context_report(self) -> ContextReport:
        """Return what fills the model's window: counted by the provider if it can, estimated before the first turn."""
        from .context_report import context_report, count_tokens  # few sessions ask

        config, prefix = self._config, self._state.prefix
        if prefix is None:
            config = self._next
            prefix = await new_prefix(config, self._listed_tools(config), self._deps.home)
        counted = await count_tokens(self._deps, self._state)
        coming = () if self._state.conversation.messages else await config.prompts.first_user_blocks()
        return context_report(self._state, prefix, config.window, counted, coming)

    async def side_answer(self, question: str) -> str | None:
        """Answer a question beside the conversation, None before the first turn. Raise ModelError."""
        return await side_answer(self._deps, self._state, question)

    def set_model(self, name: str | None) -> None:
        """Use another model from the next model call on; None means the model of the configuration."""
        model = self.model_of(name)
        if model != self._state.model:
            self._state.model = model
            AgentLog(self._deps.log, self._state.conversation).record(ModelRecord(model))

    def model_of(self, name: str | None) -> str:
        return resolve_model(name or self._next.models.model, self._next.models.names)

    def rewind(self, conversation: Conversation) -> None:
        """Go on with another conversation, which is the earlier part of this one. No turn may run."""
        self._state.conversation = conversation
        conversation.use(self._state.model)

    def configure(self, config: AgentConfig) -> None:
        """Use another configuration from the next turn on, with the present model."""
        self._next = config

    def interrupt(self) -> bool:
        """End the running turn. Return False when none is running. Idempotent."""
        if self._turn is None:
            return False
        self._turn.interrupt()
        return True

    async def run_turn(self, prompts: Sequence[Prompt]) -> Json:
        """Run one turn and return its durable `result`. Raise NotKept when the journal fails, CancelledError at
        shutdown."""
        if self._turn is not None:
            raise RuntimeError("a turn is running")
        self._take_config()
        limits = self._deps.limits.over(self._config.settings.env)
        self._turn = Turn(self._config, replace(self._deps, limits=limits), self._state)
        try:
            return await self._turn.run(prompts)
        finally:
            self._turn = None

    def _take_config(self) -> None:
        """Apply a new configuration and tools; drop the request prefix only when prompts or declarations have
        changed."""
        old, new = self._config, self._next
        registered = new.tools.begin_turn()
        if new is old and registered == self._registered:
            return
        listed = self._listed_tools(new)
        declared = [each.declaration for each in self._state.listed]
        if new.prompts is not old.prompts or [each.declaration for each in listed] != declared:
            self._state.prefix = None
        self._state.tools, self._state.listed = new.callable_tools(), listed
        self._registered, self._config = registered, new

    def _listed_tools(self, config: AgentConfig) -> tuple[Tool, ...]:
        return config.listed_tools(can_ask=self._deps.broker.can_ask(CAN_USE_TOOL))
