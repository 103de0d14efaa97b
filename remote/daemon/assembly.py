"""Makes the agents of a session out of its options, its journal and what the daemon lends to them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ccb.tunnel.wire import SessionOptions
from ccb.tunnel.wire.projection import replay

from ..agent.agent import Agent
from ..agent.conversation import Conversation
from ..agent.deps import AgentConfig, AgentDeps
from ..agent.histories import AgentHistories, AgentHistory
from ..context.prompt import session_prompt
from ..model.retry import RetrySettings
from ..permissions.engine import PermissionEngine
from ..session.emitter import AgentEmitter
from ..session.session import Session
from ..tools.contract import ToolContext
from ..tools.registry import default_tools
from .model_streams import Calls

INTERRUPTED = (
    "The worker was stopped while this tool was open. It was interrupted and may have run; "
    "check before running it again."
)
NEVER_STARTED = "The worker was stopped before this tool was started. It did not run."
COPIED = (
    "This copy of the session was made while the original ran this tool. It may have run: look before running it again."
)
COPIED_UNSTARTED = (
    "This copy of the session was made before this tool was started. It did not run here, but the original may run it: "
    "look before running it again."
)


@dataclass(frozen=True)
class AgentFactory:
    """Makes agents that record in `session` and call the model over `calls`. Any number of them can run at the same time, each
    with a history of its own."""

    session: Session
    calls: Calls
    version: str

    def agent(self, config: AgentConfig, history: AgentHistory) -> Agent:
        """Return the agent that goes on with `history`."""
        deps = AgentDeps(
            emitter=AgentEmitter(self.session, history.conversation.agent_id),
            transport=self.calls,
            broker=self.session.broker,
            session_id=self.session.id,
            version=self.version,
            link_up_since=self.calls.link_up_since,
            limits=RetrySettings.from_env(os.environ),
        )
        return Agent(config, deps, history.conversation, history.ledger)

    def main_agent(self, options: SessionOptions, context: ToolContext, engine: PermissionEngine) -> Agent:
        """Return the main agent, with the history that the journal holds. In the histories of all agents, the tool calls that
        an earlier worker left open are closed."""
        config = AgentConfig(
            prompts=session_prompt(options, context.cwd),
            tools=default_tools(),
            permissions=engine,
            context=context,
            model=options.model,
            max_turns=options.max_turns,
            partial_messages=options.partial_messages,
            api_key_source=options.api_key_source,
            take_queued=self.session.take_queued,
        )
        return self.agent(config, self._restore())

    def _restore(self) -> AgentHistory:
        journal = self.session.journal
        histories = AgentHistories()
        replay(journal.read(0, journal.seq), histories)
        damaged = bool(journal.damaged)  # a damaged record may have been the start of any tool

        def why(conversation: Conversation, tool_use_id: str) -> str:
            started = damaged or tool_use_id in conversation.started
            if tool_use_id in conversation.copied:
                return COPIED if started else COPIED_UNSTARTED
            return INTERRUPTED if started else NEVER_STARTED

        for agent_id, message in histories.close_open_tool_uses(why):
            self.session.emit(message, agent_id)
        return histories.main
