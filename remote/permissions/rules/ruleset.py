"""The rules in force, each with its source."""

from __future__ import annotations

from collections.abc import Iterable

from ccb.tunnel.wire.kinds.mcp import unmarked

from ..decision import Behavior
from .rules import Rule

COMMAND_LINE = "cliArg"
COMMAND = "command"
CLIENT = "client"
SKILLS = "skills"
_SOURCES = ("user", "project", "local", "flag")
_PUBLIC = {
    "managed": "policySettings",
    "kept": "localSettings",
    CLIENT: "session",
    **{each: f"{each}Settings" for each in _SOURCES},
}


class RuleSet:
    """Rules by source and behavior, each once, in the order in which they were added."""

    def __init__(self) -> None:
        self._rules: dict[tuple[str, Behavior], list[Rule]] = {}

    def add(self, source: str, behavior: Behavior, rules: Iterable[Rule]) -> None:
        held = self._rules.setdefault((source, behavior), [])
        held.extend(rule for rule in dict.fromkeys(rules) if rule not in held)

    def replace(self, source: str, behavior: Behavior, rules: Iterable[Rule]) -> None:
        self._rules[source, behavior] = list(dict.fromkeys(rules))

    def remove(self, source: str, behavior: Behavior, rules: Iterable[Rule]) -> None:
        gone = set(rules)
        self._rules[source, behavior] = [r for r in self._rules.get((source, behavior), []) if r not in gone]

    def listed(self) -> list[dict[str, str]]:
        """Return all rules, as clients see them."""
        return [
            {
                "behavior": behavior.value,
                "source": _PUBLIC.get(source, source),
                "rule": str(rule),
                "editability": "session" if source in (COMMAND_LINE, "session") else "readonly",
            }
            for (source, behavior), rules in self._rules.items()
            for rule in rules
        ]

    def about(self, behavior: Behavior, tool: str) -> list[Rule]:
        """Return the rules that cover calls of a tool, with and without a pattern."""
        names = (tool,) if behavior is Behavior.ALLOW else (tool, unmarked(tool))
        return [
            rule
            for (_, held_behavior), rules in self._rules.items()
            if held_behavior is behavior
            for rule in rules
            if any(map(rule.covers_tool, names))
        ]

    def only(self, behavior: Behavior, *tools: str) -> RuleSet:
        """Return a set of the rules of one behavior that cover calls of these tools."""
        found = RuleSet()
        for tool in tools:
            found.add("", behavior, self.about(behavior, tool))
        return found

    def whole_tool(self, behavior: Behavior, tool: str) -> Rule | None:
        return next((rule for rule in self.about(behavior, tool) if rule.content is None), None)

    def contents(self, behavior: Behavior, tool: str) -> list[Rule]:
        return [rule for rule in self.about(behavior, tool) if rule.content is not None]
