"""What clients are told about a session, at the start of each turn and when they ask: commands, agents, skills,
servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

Json = dict[str, Any]

LISTS = ("commands", "agents", "skills", "mcp_servers", "plugins")


class Announced:
    """Each list has one owner, which adds it under one of the names in LISTS. Commands and agents are objects with
    `name` and `description`; servers have `name` and `status`."""

    def __init__(self) -> None:
        self._lists: dict[str, Callable[[], Sequence[Json]]] = {}
        self.output_style: Callable[[], str] = lambda: "default"

    def add(self, name: str, entries: Callable[[], Sequence[Json]]) -> None:
        """Announce the list that `entries` returns."""
        if name not in LISTS:
            raise ValueError(f"clients know no list {name!r}")
        self._lists[name] = entries

    def entries(self, name: str) -> list[Json]:
        """Return a list in full."""
        entries = self._lists.get(name)
        return list(entries()) if entries is not None else []

    def init_fields(self) -> Json:
        """Return the fields of the `init` message, in which commands, agents and skills are only names."""
        return {
            "mcp_servers": self.entries("mcp_servers"),
            "slash_commands": self._names("commands"),
            "output_style": self.output_style(),
            "agents": self._names("agents"),
            "skills": self._names("skills"),
            "plugins": self.entries("plugins"),
        }

    def _names(self, name: str) -> list[str]:
        return [str(each.get("name", "")) for each in self.entries(name)]
