"""The records of agents: who writes them, and the usage and histories that are read from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Callable

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT, Content, MessageRecord, Projection, Record, on
from ccb.tunnel.wire.messages import ResultMessage
from ccb.tunnel.wire.model_facts import ESTIMATED, TOKENS, ModelFacts, count

from ..session_store.session_log import SessionLog
from .conversation import Conversation, close_open_tool_uses

_DETAILS = {
    "cache_creation": ("ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens"),
    "output_tokens_details": ("thinking_tokens",),
    "server_tool_use": ("web_search_requests", "web_fetch_requests"),
}
_TEXTS = ("service_tier", "inference_geo", "speed")
_MODEL_USAGE = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")
_MODEL_DETAILS = (
    ("webSearchRequests", "server_tool_use", "web_search_requests"),
    ("thinkingTokens", "output_tokens_details", "thinking_tokens"),
    ("cacheCreationEphemeral5mInputTokens", "cache_creation", "ephemeral_5m_input_tokens"),
    ("cacheCreationEphemeral1hInputTokens", "cache_creation", "ephemeral_1h_input_tokens"),
)


def zero_usage() -> Json:
    usage: Json = dict.fromkeys(TOKENS, 0)
    usage.update({name: dict.fromkeys(counts, 0) for name, counts in _DETAILS.items()})
    usage.update(service_tier="standard", inference_geo="", speed="standard", iterations=[])
    return usage


class Ledger(Projection):
    """The usage of a session: its results, and what `add` counted since. A sub-agent's also counts in its `parent`."""

    def __init__(self, parent: Ledger | None = None) -> None:
        self.parent = parent
        self.turn = zero_usage()
        self.total_cost_usd = 0.0
        self.model_usage: dict[str, Json] = {}

    @on(ResultMessage, main_only=True)
    def _result(self, result: ResultMessage, _: Record) -> None:
        self.total_cost_usd = float(result.total_cost_usd)
        self.model_usage = {name: dict(entry) for name, entry in result.model_usage.items()}

    @on(records.AgentResultRecord)
    def _agent_result(self, record: records.AgentResultRecord, envelope: Record) -> None:
        if isinstance(record.public, ResultMessage):
            self._result(record.public, envelope)

    def start_turn(self) -> None:
        self.turn = zero_usage()

    def add(self, model: str, known: ModelFacts, usage: Mapping[str, Any]) -> None:
        for name in TOKENS:
            self.turn[name] += count(usage, name)
        self.turn.update({name: usage[name] for name in _TEXTS if isinstance(usage.get(name), str)})
        for name, counts in _DETAILS.items():
            found = usage.get(name)
            for each in counts:
                self.turn[name][each] += count(found, each) if isinstance(found, Mapping) else 0
        if usage.get(ESTIMATED):
            self.turn[ESTIMATED] = True
        self._add_to_sums(model, known, usage)
        if self.parent is not None:
            self.parent._add_to_sums(model, known, usage)

    def _add_to_sums(self, model: str, known: ModelFacts, usage: Mapping[str, Any]) -> None:
        cost = known.cost_usd(usage)
        self.total_cost_usd += cost
        limits = {"contextWindow": known.context_window, "maxOutputTokens": known.max_output}
        entry = self.model_usage.setdefault(model, {**dict.fromkeys(_MODEL_USAGE, 0), "costUSD": 0.0, **limits})
        entry["costUSD"] += cost
        for name, public in zip(TOKENS, _MODEL_USAGE):
            entry[public] += count(usage, name)
        for public, group, name in _MODEL_DETAILS:
            found = usage.get(group)
            entry[public] = entry.get(public, 0) + (count(found, name) if isinstance(found, Mapping) else 0)
        entry["canonicalModel"] = model
        entry["costBasis"] = "list" if known.priced else "unknown"
        if usage.get(ESTIMATED):
            entry[ESTIMATED] = True

    def snapshot(self) -> dict[str, Json]:
        return {name: dict(entry) for name, entry in self.model_usage.items()}


class AgentHistory(Projection):
    def __init__(self, agent_id: str, rewound: Sequence[tuple[int, int]] = ()) -> None:
        self.conversation = Conversation(agent_id, rewound)
        self.ledger = Ledger()
        self.worktree: records.WorktreeRecord | None = None

    def apply(self, record: Record) -> None:
        self.conversation.apply(record)
        self.ledger.apply(record)


class AgentHistories(Projection):
    """The history of the main agent, and of each other agent until it ends its turn; then only the journal has it."""

    def __init__(self, rewound: Sequence[tuple[int, int]] = ()) -> None:
        self._rewound = rewound
        self.main = AgentHistory(MAIN_AGENT, rewound)
        self._by_id = {MAIN_AGENT: self.main}
        self.worktrees: dict[str, records.WorktreeRecord] = {}  # the newest of each agent that ever had one

    def apply(self, record: Record) -> None:
        if isinstance(record.content, records.WorktreeRecord):
            self.worktrees[record.agent_id] = record.content
        elif isinstance(record.content, records.ForkedRecord):
            for history in self._by_id.values():
                history.apply(record)
            if record.content.root:
                self.worktrees.clear()  # they are on another machine
        elif isinstance(record.content, records.AgentResultRecord):
            if record.agent_id != MAIN_AGENT:  # the id may be damaged
                self._by_id.pop(record.agent_id, None)
        else:
            self.of(record.agent_id).apply(record)

    def of(self, agent_id: str) -> AgentHistory:
        if agent_id not in self._by_id:
            self._by_id[agent_id] = AgentHistory(agent_id, self._rewound)
        return self._by_id[agent_id]

    @property
    def cut(self) -> dict[str, AgentHistory]:
        return {agent_id: history for agent_id, history in self._by_id.items() if agent_id != MAIN_AGENT}

    def close_open_tool_uses(self, why: Callable[[Conversation, str], str]) -> Iterator[tuple[str, MessageRecord]]:
        """Close the open tool uses of each history, the main agent's last. Yield the results; the caller emits them."""
        for agent_id, history in sorted(self._by_id.items(), key=lambda item: item[0] == MAIN_AGENT):
            for message in close_open_tool_uses(history.conversation, partial(why, history.conversation)):
                yield agent_id, message


class AgentLog:
    """Writes the records of an agent's turn to the session's log, and to the agent's projections. Raises NotKept."""

    def __init__(self, log: SessionLog, conversation: Conversation, followers: Sequence[Projection] = ()) -> None:
        self.conversation = conversation
        self.agent_id = conversation.agent_id
        self.user_messages = 0  # tool results and notes
        self._log = log
        self._projections = (conversation, *followers)

    def message(self, body: Json) -> None:
        self.record(MessageRecord(body))
        if body["type"] == "user":
            self.user_messages += 1

    def record(self, content: Content) -> None:
        record = self._log.emit(content, self.agent_id)
        for projection in self._projections:
            projection.apply(record)

    def of_sub_agent(self, content: Content, agent_id: str) -> None:
        """Write a record of a sub-agent that ccb does not run itself."""
        self._log.emit(content, agent_id)

    def progress(self, key: str, body: Json) -> None:
        """Show an object that may be lost. A newer one with the same non-empty `key` replaces it."""
        if self.agent_id != MAIN_AGENT:
            body = {**body, "parent_tool_use_id": self.agent_id}
            key = f"{self.agent_id}:{key}" if key else ""
        self._log.progress(key, body)

    async def commit(self) -> None:
        await self._log.commit()
