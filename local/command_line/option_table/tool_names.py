"""The names of tools on the command line: of those that the model is offered, and of those that rules are about."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ccb.tunnel.errors import UsageError

from ..model import Arguments
from ..option_values import shortened

_ANY = ("default", "*")
_MANY = "mcp__"
"""The start of the names of MCP tools. Which there are is known once their servers are connected."""


def unknown_tools(arguments: Arguments) -> Iterable[str]:
    """Return a sentence for each name that no tool has. Raise UsageError for the first one in `--tools`, unless a
    program drives this run: it may have been written for tools that this version lacks."""
    agent, offered = arguments.agent, arguments.sdk.tools or ()
    driven = arguments.streams.input_format == "stream-json"
    options = (("--allowedTools", agent.allowed_tools), ("--disallowedTools", agent.disallowed_tools))
    for option, names in (*options, ("--tools", offered)):
        for given in names:
            name = given.partition("(")[0] if option != "--tools" else given
            if no_such_tool(name):
                near = _nearest(name)
                if option == "--tools" and not driven:
                    raise UsageError(
                        f"--tools {shortened(name)}: there is no tool of that name",
                        do=f"Did you mean {near}?" if near else "`ccb help` says how --tools is written.",
                    )
                yield f"{option} {shortened(given)}: there is no tool of that name" + (
                    f" (did you mean {near}?)" if near else ""
                )


def no_such_tool(name: str) -> str:
    """Return a sentence that there is no tool of this name, with the name that may be meant; "" if there may be one."""
    from ccb.tunnel.wire.tool_traits import is_tool  # most starts name no tools

    if name in _ANY or name.startswith(_MANY) or is_tool(name):
        return ""
    near = _nearest(name)
    return f"there is no tool {shortened(name)!r}" + (f"; did you mean {near}?" if near else "")


def _nearest(name: str) -> str:
    from ccb.tunnel.wire.tool_traits import BUILT_IN

    near = difflib.get_close_matches(name, BUILT_IN, n=1, cutoff=0.6)
    return near[0] if near else ""
