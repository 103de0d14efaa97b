"""Which sub-agent has written a line, for clients that show agents apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccb.tunnel.wire.messages import AssistantLine, PublicLine, TaskLine, UserLine

from ...session.newest import Newest

if TYPE_CHECKING:
    from ...session.client import Json


_MAX_AGENTS = 1_000
_MAX_TEXT = 4_000  # characters


class AgentLines:
    """Knows the agents that have been started during this run."""

    def __init__(self) -> None:
        self._agents: Newest[str, Json] = Newest(_MAX_AGENTS)

    def named(self, public: PublicLine, body: Json) -> Json:
        """Return a message of the session; one of a sub-agent with the agent and its task."""
        if isinstance(public, TaskLine) and public.subtype == "task_started" and body.get("subagent_type"):
            agent = str(body.get("agent_id") or public.task_id)
            kind = str(body["subagent_type"])[:_MAX_TEXT]
            self._agents[agent] = {"subagent_type": kind, "task_description": public.description[:_MAX_TEXT]}
        elif isinstance(public, AssistantLine | UserLine) and body.get("parent_tool_use_id"):
            agent = str(body["parent_tool_use_id"])
            return {**body, "agent_id": agent, **self._agents.get(agent, {})}
        return body
