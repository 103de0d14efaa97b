"""Which sub-agent has written a line, for clients that show agents apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccb.tunnel.wire.messages import AssistantLine, PublicLine, TaskLine, UserLine

if TYPE_CHECKING:
    from ...session.client import Json


_MAX_AGENTS = 1_000


class AgentLines:
    """Knows the agents that have been started during this run."""

    def __init__(self) -> None:
        self._agents: dict[str, Json] = {}

    def named(self, public: PublicLine, body: Json) -> Json:
        """Return a message of the session; one of a sub-agent with the agent and its task."""
        if isinstance(public, TaskLine) and public.subtype == "task_started" and body.get("subagent_type"):
            agent = str(body.get("agent_id") or public.task_id)
            self._agents[agent] = {"subagent_type": body["subagent_type"], "task_description": public.description}
            while len(self._agents) > _MAX_AGENTS:
                del self._agents[next(iter(self._agents))]
        elif isinstance(public, AssistantLine | UserLine) and body.get("parent_tool_use_id"):
            agent = str(body["parent_tool_use_id"])
            return {**body, "agent_id": agent, **self._agents.get(agent, {})}
        return body
