"""The histories of all agents of a session: a projection of its journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Callable

from ccb.tunnel.wire.journal_records import (
    MAIN_AGENT,
    AgentResultRecord,
    ForkedRecord,
    MessageRecord,
    Record,
    WorktreeRecord,
)
from ccb.tunnel.wire.projection import Projection

from .conversation import Conversation, close_open_tool_uses
from .token_usage import Ledger


class AgentHistory(Projection):
    def __init__(self, agent_id: str, rewound: Sequence[tuple[int, int]] = ()) -> None:
        self.conversation = Conversation(agent_id, rewound)
        self.ledger = Ledger()
        self.worktree: WorktreeRecord | None = None

    def apply(self, record: Record) -> None:
        self.conversation.apply(record)
        self.ledger.apply(record)


class AgentHistories(Projection):
    """The history of the main agent, and of each other agent until it ends its turn; then only the journal has it."""

    def __init__(self, rewound: Sequence[tuple[int, int]] = ()) -> None:
        self._rewound = rewound
        self.main = AgentHistory(MAIN_AGENT, rewound)
        self._by_id = {MAIN_AGENT: self.main}
        self.worktrees: dict[str, WorktreeRecord] = {}
        """The newest record about the work tree of each agent that ever had one."""

    def apply(self, record: Record) -> None:
        if isinstance(record.content, WorktreeRecord):
            self.worktrees[record.agent_id] = record.content
        elif isinstance(record.content, ForkedRecord):
            for history in self._by_id.values():
                history.apply(record)
        elif isinstance(record.content, AgentResultRecord):
            if record.agent_id != MAIN_AGENT:  # the id may be damaged
                self._by_id.pop(record.agent_id, None)
        else:
            self.of(record.agent_id).apply(record)

    def takes(self, kind: type[Any], public: type[Any] | None, *, main: bool) -> bool:
        """Any record of a sub-agent says that it runs."""
        parts = self.main.conversation, self.main.ledger
        return (
            not main
            or kind in (WorktreeRecord, ForkedRecord, AgentResultRecord)
            or any(each.takes(kind, public, main=main) for each in parts)
        )

    def of(self, agent_id: str) -> AgentHistory:
        if agent_id not in self._by_id:
            self._by_id[agent_id] = AgentHistory(agent_id, self._rewound)
        return self._by_id[agent_id]

    @property
    def cut(self) -> list[AgentHistory]:
        """The histories of the sub-agents that were interrupted in a turn."""
        return [history for agent_id, history in self._by_id.items() if agent_id != MAIN_AGENT]

    def cut_agent(self, agent_id: str) -> AgentHistory | None:
        return self._by_id.get(agent_id) if agent_id != MAIN_AGENT else None

    def close_open_tool_uses(self, why: Callable[[Conversation, str], str]) -> Iterator[tuple[str, MessageRecord]]:
        """Close the open tool uses of each history, the main agent's last. Yield the results; the caller emits them."""
        for agent_id, history in sorted(self._by_id.items(), key=lambda item: item[0] == MAIN_AGENT):
            conversation = history.conversation

            def reason(tool_use_id: str, conversation: Conversation = conversation) -> str:
                return why(conversation, tool_use_id)

            for message in close_open_tool_uses(conversation, reason):
                yield agent_id, message
