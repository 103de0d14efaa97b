"""Permission rules, the set in force, updates of it, and decisions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.mcp_messages import rule_tool, unmarked
from ccb.tunnel.wire.tool_traits import mcp_rule_covers, traits_of

from ..sandbox.cage_rules import CageRules


class Behavior(Enum):
    """What a rule demands for a call, and what the engine decides about it."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True)
class Decision:
    """`reason_type` is `rule`, `mode`, `workingDir`, `hook`, `subcommandResults` or `other`. "Allow for this session"
    adds the first of `suggestions`, in the public shape. `cage` holds the call if it is allowed or granted. `pinned` is
    the real path that was decided on, if something may change where a path leads before the call uses it. `changes` are
    the real paths that an accepted command may change. `can_be_caged`: the workspace cage would make this question
    needless. `reads_services`: the rule READS_SERVICES would."""

    behavior: Behavior
    reason: str
    reason_type: str = "other"
    blocked_path: str = ""
    suggestions: list[dict[str, Any]] = field(default_factory=list)
    cage: CageRules | None = None
    pinned: str = ""
    changes: tuple[str, ...] = ()
    can_be_caged: bool = False
    reads_services: bool = False


def headless_denial(decision: Decision, tool: str) -> str:
    """Return the text for the model, with the flag that would have allowed the call."""
    hint, update = "", decision.suggestions[0] if decision.suggestions else {}
    if update.get("type") == "addRules":
        rules = [Rule(rule["toolName"], rule.get("ruleContent")) for rule in update["rules"]]
        hint = f"--allowedTools {_quoted(','.join(map(str, rules)))}"
    elif update.get("type") == "setMode":
        hint = f"--permission-mode {update['mode']}"
    elif update.get("type") == "addDirectories":
        hint = f"--add-dir {_quoted(update['directories'][0])}"
    way = f"To allow it, start the session with {hint}." if hint else "An interactive session can allow it."
    return f"Permission to use {tool} was not granted: {decision.reason} Nobody can be asked in this session. {way}"


def _quoted(text: str) -> str:
    return shlex.quote(text) if re.search(r'["$`\\!]', text) else f'"{text}"'


ANY_TOOL = "*"  # the tool of a broken rule that may be about any


@dataclass(frozen=True)
class Rule:
    """A rule about a tool, all of it without `content`. `broken` says why it cannot be read."""

    tool: str
    content: str | None = None
    broken: str = ""

    def __str__(self) -> str:
        return self.broken or (self.tool if self.content is None else f"{self.tool}({self.content})")

    def covers_tool(self, name: str) -> bool:
        """Return whether this rule applies to calls of the tool: one about Edit covers all tools that write files, one
        about Read all that read files, one about an MCP server all its tools."""
        return self.tool in (ANY_TOOL, *traits_of(name).rule_names) or mcp_rule_covers(self.tool, name)


def parse_rule(text: str) -> Rule:
    """Raise ValueError, which names the rule, if it is invalid."""
    tool, content = tool_traits.rule_parts(text)
    return Rule(rule_tool(tool), content)


def broken_rules(text: object, why: str) -> list[Rule]:
    """Return the rules that stand for one that cannot be read: they cover every use of its tool, or of any tool.
    Commands reach what a path rule is about, too."""
    tool = str(text).partition("(")[0].strip()
    if not tool_traits.is_tool(tool) and not tool.startswith("mcp__"):
        return [Rule(ANY_TOOL, broken=why)]
    is_path = traits_of(tool).rules is tool_traits.RuleKind.PATH
    return [Rule(each, broken=why) for each in (rule_tool(tool), *([tool_traits.BASH.name] if is_path else []))]


def split_rules(text: str) -> list[str]:
    rules, still_open = tool_traits.split_rules(text)
    if still_open:
        raise ValueError(f"permission rule {rules[-1].strip()!r}: a parenthesis is not closed")
    return rules


def parse_rules(texts: Iterable[str]) -> list[Rule]:
    return [parse_rule(rule) for text in texts for rule in split_rules(text)]


@dataclass(frozen=True)
class CommandPattern:
    """The content of a Bash rule: `git *` (a word boundary before ` *`), `git:*` (the same), `npm test` (exactly)."""

    text: str

    @property
    def is_exact(self) -> bool:
        return "*" not in self.text

    @property
    def words(self) -> int:
        """How many whole words of a command the pattern spells out before its first wildcard."""
        head, wildcard, _ = self.text.partition("*")
        if self.text == f"{head}*" and head.endswith(":"):
            head = head[:-1] + " "
        try:
            found = len(shlex.split(head))
        except ValueError:
            return 0
        return found if not wildcard or head.endswith(" ") else max(0, found - 1)

    def matches(self, command: str) -> bool:
        """Return whether the pattern covers the command, in linear time. ` *` at the end also matches no text."""
        command = re.sub(r"\s", " ", command)
        for ending in (":*", " *"):
            if self.text.endswith(ending):
                body = self.text[: -len(ending)].rstrip()
                return _matches(body, command) or _matches(f"{body} *", command)
        return _matches(self.text, command)


def _matches(pattern: str, text: str) -> bool:
    head, *parts = pattern.split("*")
    if not parts:
        return text == pattern
    tail = parts.pop()
    if not text.startswith(head) or len(text) < len(head) + len(tail) or not text.endswith(tail):
        return False
    at, end = len(head), len(text) - len(tail)
    for part in parts:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


COMMAND_LINE = "cliArg"
COMMAND = "command"
CLIENT = "client"
SKILLS = "skills"
_PUBLIC = {
    **{each: f"{each}Settings" for each in ("user", "project", "local", "flag")},
    "managed": "policySettings",
    "kept": "localSettings",
    CLIENT: "session",
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
        names = (tool,) if behavior is Behavior.ALLOW else (tool, unmarked(tool))
        return [
            rule
            for (_, held_behavior), rules in self._rules.items()
            if held_behavior is behavior
            for rule in rules
            if any(map(rule.covers_tool, names))
        ]

    def only(self, behavior: Behavior, *tools: str) -> RuleSet:
        found = RuleSet()
        for tool in tools:
            found.add("", behavior, self.about(behavior, tool))
        return found

    def whole_tool(self, behavior: Behavior, tool: str) -> Rule | None:
        return next((rule for rule in self.about(behavior, tool) if rule.content is None), None)

    def contents(self, behavior: Behavior, tool: str) -> list[Rule]:
        return [rule for rule in self.about(behavior, tool) if rule.content is not None]


_MAX_ITEMS = 200


def updated_rules(update: Mapping[str, Any]) -> tuple[Behavior, list[Rule]]:
    """Return what an update says of rules. Raise ValueError if it is not of the known shape, or for a rule."""
    try:
        behavior = Behavior(update.get("behavior"))
    except ValueError:
        raise ValueError(f"{update.get('type')}: behavior must be allow, ask or deny") from None
    rules = []
    for item in listed_in(update, "rules"):
        given = item if isinstance(item, Mapping) else {}
        tool, content = given.get("toolName"), given.get("ruleContent")
        if not isinstance(tool, str) or not isinstance(content, (str, type(None))):
            raise ValueError(f"{update.get('type')}: a rule needs toolName, and ruleContent as a text")
        rules.append(parse_rule(tool if content is None else f"{tool}({content})"))
    return behavior, rules


def listed_in(update: Mapping[str, Any], key: str) -> list[Any]:
    found = update.get(key)
    if not isinstance(found, list) or len(found) > _MAX_ITEMS:
        raise ValueError(f"{update.get('type')}: {key} must be a list of at most {_MAX_ITEMS}")
    return found
