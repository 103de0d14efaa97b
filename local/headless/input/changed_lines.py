"""Counts the lines that the edits of a run have added and removed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...session.client import Json


class ChangedLines:
    """Lines added and removed so far, by the results of the edits."""

    def __init__(self) -> None:
        self.added = 0
        self.removed = 0

    def note(self, body: Json) -> None:
        """Count the lines of an edit. `body` is a public user message; other messages count nothing."""
        told = body.get("tool_use_result")
        if not isinstance(told, dict):
            return
        hunks, content = told.get("structuredPatch"), told.get("content")
        if told.get("type") == "create" and isinstance(content, str):  # a new file has no patch
            self.added += len(content.splitlines())
        for hunk in hunks if isinstance(hunks, list) else ():
            lines = hunk.get("lines") if isinstance(hunk, dict) else None
            signs = Counter(str(line)[:1] for line in lines) if isinstance(lines, list) else Counter()
            self.added += signs["+"]
            self.removed += signs["-"]
