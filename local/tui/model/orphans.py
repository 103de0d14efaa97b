"""What belongs to events that are not loaded."""

from __future__ import annotations

from typing import Any

from ...session.messages import ToolResultBlock

_MOST = 64
_MOST_CHARS = 100_000


class Strays:
    """Results of calls, messages that were withdrawn, prompts that were taken; the newest are kept until their beginning is
    loaded."""

    def __init__(self) -> None:
        self.results: dict[str, tuple[ToolResultBlock, Any]] = {}
        self.withdrawn: dict[str, None] = {}
        self.taken: dict[str, None] = {}

    def note_result(self, result: ToolResultBlock, structured: Any) -> None:
        if len(result.text()) <= _MOST_CHARS and len(str(structured)) <= _MOST_CHARS:
            self.results[result.tool_use_id] = result, structured
            _trim(self.results)

    def note_withdrawn(self, message_id: str) -> None:
        self.withdrawn[message_id] = None
        _trim(self.withdrawn)

    def note_taken(self, uuid: str) -> None:
        self.taken[uuid] = None
        _trim(self.taken)


def _trim(kept: dict[str, Any]) -> None:
    while len(kept) > _MOST:
        del kept[next(iter(kept))]
