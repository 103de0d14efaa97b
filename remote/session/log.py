"""The journal of a running session, its projections, and the emitter of each agent."""

from __future__ import annotations

from typing import Any, Protocol

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.projection import Projection, replay
from ccb.tunnel.wire.records import MAIN_AGENT, Content, MessageRecord, Record
from ccb.tunnel.wire.requests import new_uuid

from ..agent.usage import SessionUsage
from ..file_history.points import RewindPoints
from ..journal.journal import Journal
from ..journal.summary import JournalSummary
from .partial import Partial
from .snapshot import SnapshotProjection

Json = dict[str, Any]


class Watchers(Protocol):
    """The attached clients, as their session sees them."""

    def progress(self, key: str, body: Json, *, driver_only: bool = False) -> None:
        """Show a public object that is not journalled and may be lost, to every client or to the driver only."""

    def changed(self) -> None:
        """The state of the session or its last prompt has changed."""


class SessionLog:
    """The only writer to the journal of a session. It passes every record on to the projections `summary`, `usage`,
    `partial`, `snapshot` and `points`, and to those added with `follow`."""

    def __init__(self, session_id: str, journal: Journal, watchers: Watchers) -> None:
        self.session_id = session_id
        self.journal = journal
        self.summary = JournalSummary()
        self.usage = SessionUsage()
        self.partial = Partial()
        self.snapshot = SnapshotProjection()
        self.points = RewindPoints()
        self._projections: list[Projection] = [
            self.summary,
            self.usage,
            self.partial,
            self.snapshot,
            self.points,
        ]
        self._watchers = watchers

    def read(self, *more: Projection) -> None:
        """Feed the existing journal to the projections and to `more`, in one pass."""
        replay(self.journal.all(), *self._projections, *more)

    def follow(self, projection: Projection) -> None:
        """Pass every future record to another projection. It comes after the others, so it may emit records itself."""
        self._projections.append(projection)

    def emit(self, content: Content, agent_id: str = MAIN_AGENT) -> Record:
        """Append a record of an agent. A public message gets the session's id, and an id of its own if it has none.
        Raises JournalError."""
        if isinstance(content, MessageRecord):
            content = MessageRecord(self._whole(content.body))
        record = self.journal.append(content, agent_id)
        for projection in self._projections:
            projection.apply(record)
        if isinstance(content, MessageRecord):
            self.journal.flush_soon()
        return record

    def say(self, body: Json) -> None:
        """Append a public message of the main agent. Raises JournalError."""
        self.emit(MessageRecord(body))

    def progress(self, key: str, body: Json) -> None:
        """Show a public object that is not journalled; see `Emitter.progress`."""
        whole = self._whole(body)
        self.partial.take(key, whole)
        self._watchers.progress(key, whole)

    async def commit(self) -> None:
        """Return when every record so far is durable. Raises JournalError."""
        await self.journal.commit()

    def _whole(self, body: Json) -> Json:
        return {**body, "session_id": self.session_id, "uuid": body.get("uuid") or new_uuid()}


@dataclass(frozen=True)
class AgentEmitter:
    """The `Emitter` of the agent `agent_id`: its records and its progress carry that id."""

    log: SessionLog
    agent_id: str = MAIN_AGENT

    def emit(self, content: Content) -> Record:
        return self.log.emit(content, self.agent_id)

    def progress(self, key: str, body: Json) -> None:
        if self.agent_id != MAIN_AGENT:
            body = {**body, "parent_tool_use_id": self.agent_id}
            key = f"{self.agent_id}:{key}" if key else ""
        self.log.progress(key, body)

    async def commit(self) -> None:
        await self.log.commit()
