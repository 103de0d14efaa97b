"""What steers a session beside its approvals: inputs, tasks in the background, MCP servers and the model's thinking."""

from __future__ import annotations

from dataclasses import dataclass

from .mcp_servers import McpServerList
from .tasks import TaskSteering
from .thinking import ThinkingSteering

__all__ = ["Steering"]


@dataclass(frozen=True)
class Steering:
    """What the slash commands of one session steer."""

    tasks: TaskSteering
    mcp: McpServerList
    thinking: ThinkingSteering
