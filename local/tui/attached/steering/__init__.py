"""What steers a session beside its approvals: inputs, tasks in the background, MCP servers,
the model and its thinking, its name and rules, what is known of laptop and host, a copy of it all in a file, and files
between the two machines."""

from __future__ import annotations

from ccb.tunnel.wire.dataclass import dataclass

from ...queue.editing import QueueEditing
from ...sessions.choosing import SessionChoosing
from ...transfers.carrying import FileCarrying
from .exporting import Exporting
from .insight import Insight
from .mcp_servers import McpServerList
from .model_choosing import ModelChoosing
from .session_facts import SessionFacts
from .tasks import TaskSteering
from .thinking import ThinkingSteering

__all__ = ["Steering"]


@dataclass(frozen=True)
class Steering:
    """What the slash commands of one session steer."""

    tasks: TaskSteering
    mcp: McpServerList
    thinking: ThinkingSteering
    exporting: Exporting
    facts: SessionFacts
    choosing: SessionChoosing
    queue: QueueEditing
    insight: Insight
    files: FileCarrying
    models: ModelChoosing
