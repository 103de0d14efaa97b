"""The way of one agent into the journal of its session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ccb.tunnel.wire.records import MAIN_AGENT, Content, Record

if TYPE_CHECKING:
    from .session import Session

Json = dict[str, Any]


@dataclass(frozen=True)
class AgentEmitter:
    """The `Emitter` of the agent `agent_id`: its records and its progress carry that id."""

    session: Session
    agent_id: str = MAIN_AGENT

    def emit(self, content: Content) -> Record:
        return self.session.emit(content, self.agent_id)

    def progress(self, key: str, body: Json) -> None:
        if self.agent_id != MAIN_AGENT:
            body = {**body, "parent_tool_use_id": self.agent_id}
            key = f"{self.agent_id}:{key}" if key else ""
        self.session.progress(key, body)

    async def commit(self) -> None:
        await self.session.commit()
