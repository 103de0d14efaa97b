"""One sub-agent, as far as this terminal has seen it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Json = dict[str, Any]

MAX_ROWS = 200
"""The newest tool calls of a sub-agent that are kept for the screen."""


class RowState(Enum):
    """The progress of a tool call of a sub-agent. ASKS: it waits for the person."""

    WAITING = "waiting"
    RUNNING = "running"
    ASKS = "asks"
    DONE = "done"
    FAILED = "failed"


@dataclass(eq=False)
class AgentRow:
    """One tool call of a sub-agent."""

    name: str
    tool_input: Json
    state: RowState = RowState.WAITING


@dataclass(eq=False)
class AgentRun:
    """What a sub-agent has done. `tokens`, `seconds` and `cost_usd` are what the worker said last; `note` is what it
    waits for, "" for nothing; `branch`
    is that of the git worktree that it has left."""

    rows: deque[AgentRow] = field(default_factory=lambda: deque(maxlen=MAX_ROWS))
    tool_uses: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cost_usd: float | None = None
    note: str = ""
    ended: bool = False
    in_background: bool = False
    branch: str = ""
