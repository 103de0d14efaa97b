"""Put an agent together for a session: tools, permissions, prompts, model transport."""

from __future__ import annotations

import os
from typing import Any

from ccb.tunnel.wire import SessionOptions
from ccb.tunnel.wire.projection import replay

from ..agent.agent import Agent
from ..agent.conversation import Conversation, close_open_tool_uses
from ..agent.deps import AgentConfig, AgentDeps
from ..agent.usage import Ledger
from ..context.prompt import session_prompt
from ..model.retry import RetrySettings
from ..permissions.engine import PermissionEngine
from ..session.emitter import AgentEmitter
from ..session.session import Session
from ..tools.contract import ToolContext
from ..tools.registry import default_tools
from .model_streams import Calls

Json = dict[str, Any]

INTERRUPTED = "The worker was stopped while this tool was open. It was interrupted and may have run; check before running it again."
NEVER_STARTED = "The worker was stopped before this tool was started. It did not run."
COPIED = (
    "This copy of the session was made while the original ran this tool. It may have run: look before running it again."
)
COPIED_UNSTARTED = (
    "This copy of the session was made before this tool was started. It did not run here, but the original may run it: "
    "look before running it again."
)


def assemble(
    session: Session,
    options: SessionOptions,
    *,
    calls: Calls,
    context: ToolContext,
    engine: PermissionEngine,
    version: str,
) -> Agent:
    """The agent of `session`, with the conversation that its journal holds."""

    conversation, ledger = Conversation(), Ledger()
    replay(session.journal.read(0, session.journal.seq), conversation, ledger)

    def why(tool_id: str) -> str:
        # a damaged record may have been the start of any tool
        started = bool(session.journal.damaged) or tool_id in conversation.started
        if tool_id in conversation.copied:
            return COPIED if started else COPIED_UNSTARTED
        return INTERRUPTED if started else NEVER_STARTED

    for message in close_open_tool_uses(conversation, why):
        session.emit(message)
    config = AgentConfig(
        prompts=session_prompt(options, context.cwd),
        tools=default_tools(),
        permissions=engine,
        context=context,
        model=options.model,
        max_turns=options.max_turns,
        partial_messages=options.partial_messages,
        api_key_source=options.api_key_source,
        take_queued=session.take_queued,
    )
    deps = AgentDeps(
        emitter=AgentEmitter(session),
        transport=calls,
        broker=session.broker,
        session_id=session.id,
        version=version,
        link_up_since=calls.link_up_since,
        limits=RetrySettings.from_env(os.environ),
    )
    return Agent(config, deps, conversation, ledger)
