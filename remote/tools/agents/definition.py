"""The definition of an agent that the main agent can start."""

from __future__ import annotations

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.mcp import rule_tool, unmarked
from ccb.tunnel.wire.tool_traits import own_name

INHERIT = "inherit"
BUILT_IN_SOURCE = "built-in"
WORKTREE = "worktree"


@dataclass(frozen=True)
class AgentDefinition:
    """One kind of sub-agent. `description` tells the main agent when to use it; `prompt` is its system prompt. `tools`
    are the names of its tools (None: all that the main agent has), without those in `disallowed_tools`. `model` and
    `permission_mode` are those of the main agent if they are "". `read_only`: it gets no tool that writes, and none of
    its calls may change anything. `background`: it always works in the background. `isolation` is WORKTREE if it
    works in a work tree of its own. `source` says who defined it. `effort` is that of the main agent if it is "".
    `skills` are the names of those that it knows from the start."""

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

    def offers(self, tool_name: str) -> bool:
        """Return whether the agent may have a tool of this name."""
        allowed = self.tools is None or any(_names(entry, tool_name) for entry in self.tools)
        names = (tool_name, unmarked(tool_name))
        return allowed and not any(_names(entry, name) for entry in self.disallowed_tools for name in names)


def _names(entry: str, tool_name: str) -> bool:
    """Return whether an entry of a list names a tool: by its name, or by the server that brings it (`mcp__server`)."""
    if entry.startswith("mcp__"):
        entry = rule_tool(entry)
        server = entry[: -len("__*")] if entry.endswith("__*") else entry
        return tool_name == entry or (server.count("__") == 1 and tool_name.startswith(server + "__"))
    return entry == "*" or own_name(entry) == tool_name
