"""Permission rules as people write them: `Bash`, `Bash(git *)`, `Edit(src/**)`, `mcp__server`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.mcp import rule_tool
from ccb.tunnel.wire.tool_traits import mcp_rule_covers, traits_of

ANY_TOOL = "*"
"""The tool of a broken rule that may be about any."""


class RuleError(ValueError):
    """A rule cannot be parsed; the text names it and says what is wrong."""


@dataclass(frozen=True)
class Rule:
    """A rule about a tool. `content` is None if it covers the whole tool. `broken` says why the rule cannot be read: it
    stands for all that it may have been about."""

    tool: str
    content: str | None = None
    broken: str = ""

    def __str__(self) -> str:
        return self.broken or (self.tool if self.content is None else f"{self.tool}({self.content})")

    def covers_tool(self, name: str) -> bool:
        """Return whether this rule applies to calls of the tool `name`. A rule about Edit covers all tools that write
        files, a rule about Read all tools that read files, and a rule about an MCP server all its tools."""
        return self.tool in (ANY_TOOL, *traits_of(name).rule_names) or mcp_rule_covers(self.tool, name)


def parse_rule(text: str) -> Rule:
    """Parse one rule. Raise RuleError if it is invalid."""
    try:
        tool, content = tool_traits.rule_parts(text)
    except ValueError as error:
        raise RuleError(str(error)) from None
    return Rule(rule_tool(tool), content)


def broken_rules(text: object, why: str) -> list[Rule]:
    """Return the rules that stand for one that cannot be read: they cover every use of its tool, or of any tool. What a
    path rule is about is within the reach of commands, too."""
    tool = str(text).partition("(")[0].strip()
    if not tool_traits.is_tool(tool) and not tool.startswith("mcp__"):
        return [Rule(ANY_TOOL, broken=why)]
    is_path = traits_of(tool).rules is tool_traits.RuleKind.PATH
    return [Rule(each, broken=why) for each in (rule_tool(tool), *([tool_traits.BASH.name] if is_path else []))]


def split_rules(text: str) -> list[str]:
    """Split a list of rules at commas and blanks outside parentheses. Raise RuleError if one is left open."""
    rules, still_open = tool_traits.split_rules(text)
    if still_open:
        raise RuleError(f"permission rule {rules[-1].strip()!r}: a parenthesis is not closed")
    return rules


def parse_rules(texts: Iterable[str]) -> list[Rule]:
    """Parse every rule of several lists. Raise RuleError for an invalid one."""
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
        """Return whether the pattern covers the command. `*` matches any text; ` *` at the end also matches no text at
        all. The time is linear in the length of the texts."""
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
