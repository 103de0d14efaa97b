"""The definition of an agent that the main agent can start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.mcp import rule_tool, server_name, unmarked
from ccb.tunnel.wire.tool_traits import EDIT, READ, WRITE, own_name

from ...hooks.table import Hook

Json = dict[str, Any]

INHERIT = "inherit"
BUILT_IN_SOURCE = "built-in"
WORKTREE = "worktree"
_FOR_MEMORY = (READ.name, WRITE.name, EDIT.name)


@dataclass(frozen=True)
class AgentDefinition:
    """One kind of sub-agent. `description` tells the main agent when to use it; `prompt` is its system prompt. `tools`
    are the names of its tools (None: all that the main agent has), without those in `disallowed_tools`. `model` and
    `permission_mode` are those of the main agent if they are "". `read_only`: it gets no tool that writes, and none of
    its calls may change anything. `background`: it always works in the background. `isolation` is WORKTREE if it
    works in a work tree of its own. `source` says who defined it. `effort` is that of the main agent if it is "".
    `skills` are the names of those that it knows from the start. `hooks` run for its events only. `servers` are MCP
    servers that it has besides those of `tools`: each with its description, or None for one that the session has.
    `memory` is the scope of the directory in which it keeps notes, "" for none. `initial_prompt` goes before the first
    prompt of a session whose main agent works as this one. `required` are names of MCP servers without which it cannot
    start."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = ()
    model: str = ""
    permission_mode: str = ""
    max_turns: int | None = None
    read_only: bool = False
    background: bool = False
    isolation: str = ""
    source: str = BUILT_IN_SOURCE
    effort: str = ""
    skills: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()
    servers: tuple[tuple[str, Json | None], ...] = ()
    memory: str = ""
    initial_prompt: str = ""
    required: tuple[str, ...] = ()

    def unmet(self, connected: Iterable[str]) -> str:
        """Return why the agent cannot start, "" if it can: a required MCP server is not among those `connected` and not
        one of its own. A part of a name is enough, and letter case does not count."""
        known = [name.casefold() for name in (*connected, *(name for name, given in self.servers if given is not None))]
        for each in self.required:
            if not any(each.casefold() in name for name in known):
                return f"The agent {self.name} needs the MCP server {each}, which is not connected in this session."
        return ""

    def offers(self, tool_name: str) -> bool:
        """Return whether the agent may have a tool of this name."""
        listed = (*(self.tools or ()), *(f"mcp__{server_name(name)}" for name, _ in self.servers))
        allowed = self.tools is None or any(_names(entry, tool_name) for entry in listed)
        allowed = allowed or bool(self.memory and tool_name in _FOR_MEMORY)
        names = (tool_name, unmarked(tool_name))
        return allowed and not any(_names(entry, name) for entry in self.disallowed_tools for name in names)


def _names(entry: str, tool_name: str) -> bool:
    """Return whether an entry of a list names a tool: by its name, or by the server that brings it (`mcp__server`)."""
    if entry.startswith("mcp__"):
        entry = rule_tool(entry)
        server = entry[: -len("__*")] if entry.endswith("__*") else entry
        return tool_name == entry or (server.count("__") == 1 and tool_name.startswith(server + "__"))
    return entry == "*" or own_name(entry) == tool_name
