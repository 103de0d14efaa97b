"""Data that arrived for messages, tool calls and prompts whose beginning is not loaded yet."""

from __future__ import annotations

from typing import Any

from ...session.messages import ToolResultBlock
from ...session.newest import Newest

_MAX_KEPT = 64
_MAX_CHARS = 100_000


class Orphans:
    """Results of tool calls, ids of messages that were withdrawn, and ids of prompts that the agent took. The newest
    of each are kept until the person loads the earlier events to which they belong."""

    def __init__(self) -> None:
        self.results: Newest[str, tuple[ToolResultBlock, Any]] = Newest(_MAX_KEPT)
        self.withdrawn: Newest[str, None] = Newest(_MAX_KEPT)
        self.taken: Newest[str, None] = Newest(_MAX_KEPT)

    def note_result(self, result: ToolResultBlock, structured: Any) -> None:
        """Keep the result of a tool call, unless it is very long."""
        if len(result.text()) <= _MAX_CHARS and len(str(structured)) <= _MAX_CHARS:
            self.results[result.tool_use_id] = result, structured

    def note_withdrawn(self, message_id: str) -> None:
        """Remember that a message of the model was withdrawn."""
        self.withdrawn[message_id] = None

    def note_taken(self, input_id: str) -> None:
        """Remember that the agent has taken a prompt."""
        self.taken[input_id] = None
