"""Records and progress of one agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ccb.tunnel.wire.journal_records import MAIN_AGENT, AgentResultRecord, Content, MessageRecord
from ccb.tunnel.wire.projection import Projection

from ..session_store.session_log import SessionLog
from .conversation import Conversation

Json = dict[str, Any]


class AgentLog:
    """Writes the records of an agent's turn to the session's log, and to the agent's projections. Raises NotKept."""

    def __init__(self, log: SessionLog, conversation: Conversation, followers: Sequence[Projection] = ()) -> None:
        self.conversation = conversation
        self.agent_id = conversation.agent_id
        self.user_messages = 0
        """How many user messages (tool results and notes) were recorded."""
        self._log = log
        self._projections = (conversation, *followers)

    def message(self, body: Json) -> None:
        self.record(MessageRecord(body))
        if body["type"] == "user":
            self.user_messages += 1

    def begin(self, init: Json) -> None:
        """Announce a turn of the main agent: clients take `init` for the start of the session's turn."""
        if self.agent_id == MAIN_AGENT:
            self.message(init)

    def end(self, result: Json) -> None:
        """Record the result: a public message of the main agent, an `agent_result` of any other."""
        if self.agent_id == MAIN_AGENT:
            self.message(result)
        else:
            self.record(AgentResultRecord(result))

    def record(self, content: Content) -> None:
        record = self._log.emit(content, self.agent_id)
        for projection in self._projections:
            projection.apply(record)

    def progress(self, key: str, body: Json) -> None:
        """Show an object that may be lost. A newer one with the same non-empty `key` replaces it."""
        if self.agent_id != MAIN_AGENT:
            body = {**body, "parent_tool_use_id": self.agent_id}
            key = f"{self.agent_id}:{key}" if key else ""
        self._log.progress(key, body)

    async def commit(self) -> None:
        """Return when everything recorded so far is durable (group commit)."""
        await self._log.commit()
