"""Records and progress of one agent."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from ccb.tunnel.wire.journal_records import MAIN_AGENT, AgentResultRecord, Content, MessageRecord, Record

from .conversation import Conversation

Json = dict[str, Any]


class Recorder:
    """Emits the records of a turn and applies each to the agent's conversation. Every method but `progress` raises
    NotKept."""

    def __init__(self, emitter: Emitter, conversation: Conversation) -> None:
        self.conversation = conversation
        self.user_messages = 0
        """How many user messages (tool results and notes) this turn has recorded."""
        self._emitter = emitter

    @property
    def agent_id(self) -> str:
        return self.conversation.agent_id

    def message(self, body: Json) -> None:
        """Record a public message."""
        self.record(MessageRecord(body))
        if body["type"] == "user":
            self.user_messages += 1

    def begin(self, init: Json) -> None:
        """Announce a turn of the main agent. Turns of other agents are not announced, because clients take `init` for
        the start of the session's turn."""
        if self.agent_id == MAIN_AGENT:
            self.message(init)

    def end(self, result: Json) -> None:
        """Record the result of the turn: a public message of the main agent, an `agent_result` of any other."""
        if self.agent_id == MAIN_AGENT:
            self.message(result)
        else:
            self.record(AgentResultRecord(result))

    def record(self, content: Content) -> None:
        """Record anything else."""
        self.conversation.apply(self._emitter.emit(content))

    def progress(self, key: str, body: Json) -> None:
        """Show something that may be lost and is not journalled. A newer object with the same non-empty `key` replaces
        it."""
        self._emitter.progress(key, body)

    async def commit(self) -> None:
        """Return when everything recorded so far is durable."""
        await self._emitter.commit()


P = TypeVar("P")
A = TypeVar("A")


class Emitter(Protocol):
    """The sink for the records and the progress of one agent. Everything it emits carries the agent's id."""

    def emit(self, content: Content) -> Record:
        """Append a record to the journal and return it. A public message is complete but for `session_id` and `uuid`,
        which are added here. Raises NotKept."""

    def progress(self, key: str, body: Json) -> None:
        """Show a public object that is not journalled and may be lost. A newer one with the same non-empty `key`
        replaces an older one that was not sent yet."""

    async def commit(self) -> None:
        """Return when everything emitted before is durable (group commit). Call it once for each model message, before
        a tool starts, and after its result. Raises NotKept."""
