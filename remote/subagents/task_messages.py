"""The public messages about a sub-agent, in the shapes of the stream-json protocol. They belong to the main agent."""

from __future__ import annotations

from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

Json = dict[str, Any]

_MAX_LABEL = 120  # characters


@dataclass(frozen=True)
class TaskFacts:
    """The facts about a sub-agent that its messages name. `id` is the id of the call that started it, `call_id` that of
    the call it works for now; they differ when it goes on with its history."""

    id: str
    agent: str
    description: str
    prompt: str
    call_id: str = ""

    @property
    def label(self) -> str:
        """The agent and its task in one short line."""
        return " ".join(f"{self.agent}: {self.description}".split())[:_MAX_LABEL]


@dataclass(frozen=True)
class TaskUsage:
    """What a sub-agent has used so far."""

    tokens: int
    tool_uses: int
    seconds: float

    def public(self) -> Json:
        return {
            "total_tokens": self.tokens,
            "tool_uses": self.tool_uses,
            "duration_ms": round(self.seconds * 1000),
        }


def task_started(facts: TaskFacts) -> Json:
    """Return the message that a sub-agent starts."""
    return {
        **_about("task_started", facts),
        "description": facts.description,
        "task_type": "local_agent",
        "is_backgrounded": False,
        "prompt": facts.prompt,
    }


def task_progress(facts: TaskFacts, usage: TaskUsage, doing: str, last_tool: str) -> Json:
    """Return the message about what a sub-agent is doing now."""
    return {
        **_about("task_progress", facts),
        "description": doing or facts.description,
        "usage": usage.public(),
        "last_tool_name": last_tool,
    }


def task_notification(facts: TaskFacts, status: str, summary: str, usage: TaskUsage | None = None) -> Json:
    """Return the message that a sub-agent has ended: `completed`, `failed` or `stopped`."""
    body = {**_about("task_notification", facts), "status": status, "output_file": "", "summary": summary}
    return body if usage is None else {**body, "usage": usage.public()}


def _about(subtype: str, facts: TaskFacts) -> Json:
    return {
        "type": "system",
        "subtype": subtype,
        "task_id": facts.id,
        "tool_use_id": facts.call_id or facts.id,
        "subagent_type": facts.agent,
    }
