"""What this laptop offers to the session on the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...connect.project_trust import ProjectDesk
    from ...mcp.service import LaptopServers
    from ..sessions.choosing import ListSessions


@dataclass(frozen=True)
class LaptopSide:
    """`projects` asks about the project on the screen, `mcp` are the MCP servers of this laptop, `sessions` lists the
    sessions of the host."""

    projects: ProjectDesk
    mcp: LaptopServers | None
    sessions: ListSessions
