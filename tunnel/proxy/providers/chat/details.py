"""OpenRouter's reasoning_details: pieces of a stream, put together as they must go back."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_GROWING = ("text", "summary", "data")


class ReasoningDetails:
    """Collects the pieces. Those of the same type and index that follow each other are one entry."""

    def __init__(self) -> None:
        self.size = 0
        """Characters of all pieces so far, and a hundred for each."""
        self._entries: list[Json] = []

    def add(self, details: object) -> None:
        """Take what one event has."""
        for piece in details if isinstance(details, list) else ():
            if not isinstance(piece, dict):
                continue
            self.size += 100 + sum(len(value) for value in piece.values() if isinstance(value, str))
            last = self._entries[-1] if self._entries else None
            same = last is not None and all(last.get(name) == piece.get(name) for name in ("type", "index"))
            if last is None or not same or (piece.get("id") and last.get("id") and piece["id"] != last["id"]):
                self._entries.append(dict(piece))
                continue
            for name, value in piece.items():
                if name in _GROWING and isinstance(value, str) and isinstance(last.get(name), str):
                    last[name] += value
                elif value is not None:
                    last[name] = value

    def take(self) -> list[Json]:
        """Return the entries since the last call."""
        taken, self._entries = self._entries, []
        return taken
