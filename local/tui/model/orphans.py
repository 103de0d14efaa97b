"""Data that arrived for messages, tool calls and prompts whose beginning is not loaded yet."""

from __future__ import annotations

from typing import Any

from ccb.tunnel.wire.messages import as_text

from ...session.images import result_text
from ...session.newest import Newest

Json = dict[str, Any]

_MAX_KEPT = 64
_MAX_CHARS = 100_000


class Orphans:
    """Results of tool calls, ids of messages that were withdrawn, and ids of prompts that the agent took. The newest
    of each are kept until the person loads the earlier events to which they belong."""

    def __init__(self) -> None:
        self.results: Newest[str, tuple[Json, Any]] = Newest(_MAX_KEPT)
        self.withdrawn: Newest[str, None] = Newest(_MAX_KEPT)
        self.taken: Newest[str, None] = Newest(_MAX_KEPT)

    def note_result(self, result: Json, structured: Any) -> None:
        """Keep the result of a tool call, unless it is very long."""
        if len(result_text(result)) <= _MAX_CHARS and len(str(structured)) <= _MAX_CHARS:
            kept = {name: result.get(name) for name in ("tool_use_id", "content", "is_error")}
            self.results[as_text(result.get("tool_use_id"))] = kept, structured

    def note_withdrawn(self, message_id: str) -> None:
        """Remember that a message of the model was withdrawn."""
        self.withdrawn[message_id] = None

    def note_taken(self, input_id: str) -> None:
        """Remember that the agent has taken a prompt."""
        self.taken[input_id] = None
