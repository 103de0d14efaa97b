"""Sub-agents that an earlier worker left in the middle of their turn, and those that go on with their history."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Callable

from ccb.tunnel.wire.kinds.worktrees import WorktreeRecord
from ccb.tunnel.wire.messages import TaskLine
from ccb.tunnel.wire.records import MAIN_AGENT, AgentResultRecord, MessageRecord, Record

from ..agent.history.histories import AgentHistories, AgentHistory
from ..agent.usage import zero_usage
from ..ports import Emitter
from .task_messages import TaskFacts, task_notification

Json = dict[str, Any]

_STOPPED = "The worker was stopped while this agent worked."
_MAX_WORDS = 4_000  # characters


def after_a_cut(history: AgentHistory, tree: WorktreeRecord | None) -> str:
    """Return what the main agent is told about a sub-agent that was cut, beside the fact that its call was. `tree` is
    the newest record about a work tree of the sub-agent."""
    words = history.conversation.last_words[:_MAX_WORDS]
    said = f" The last that it said:\n{words}" if words else ""
    agent_id = history.conversation.agent_id
    if tree is not None and not tree.removed:
        said = f" Its worktree is {tree.path}, on the branch {tree.branch}.{said}"
    return (
        "What the agent had done until then stays done. It is not running any more. To let it go on with all that it "
        f"knows, start it again with resume: {agent_id!r} and say what it should do now.{said}"
    )


def left_behind(tree: WorktreeRecord) -> str:
    """Return what the main agent is told about the work tree of a sub-agent that was not cut in a turn: it had not
    begun, or it had ended and its answer was not passed on."""
    return f"The git worktree that was made for the agent is {tree.path}, on the branch {tree.branch}."


def end_cut_agents(histories: AgentHistories, emitter: Callable[[str], Emitter], tasks: Collection[str]) -> None:
    """Write the end of each sub-agent that was cut: a result of its turn, and the message to clients. Those in `tasks`
    worked in the background, so their end is told as that of a task. `emitter` returns the emitter of an agent."""
    for history in histories.cut:
        agent_id = history.conversation.agent_id
        result: Json = {
            "type": "result",
            "subtype": "error_during_execution",
            "is_error": True,
            "total_cost_usd": history.ledger.total_cost_usd,
            "modelUsage": history.ledger.snapshot(),
            "usage": zero_usage(),
            "terminal_reason": "model_error",
            "errors": [_STOPPED],
        }
        emitter(agent_id).emit(AgentResultRecord(result))
        if agent_id in tasks:
            continue
        facts = TaskFacts(agent_id, "", "", "")
        emitter(MAIN_AGENT).emit(MessageRecord(task_notification(facts, "failed", _STOPPED)))


def earlier_run(records: Iterable[Record], agent_id: str) -> tuple[str, AgentHistory]:
    """Return the name ("" if there was no such agent) and the history of a sub-agent that has ended."""
    name, history = "", AgentHistory(agent_id)
    for record in records:
        if record.agent_id == agent_id:
            history.conversation.apply(record)
            if isinstance(record.content, WorktreeRecord):
                history.worktree = record.content
        elif isinstance(record.content, MessageRecord) and isinstance(record.content.public, TaskLine):
            line = record.content.public
            if line.subtype == "task_started" and line.task_id == agent_id:
                name = str(line.body.get("subagent_type"))
    return name, history
