"""The names of tools on the command line: of those that the model is offered, and of those that rules are about."""

from __future__ import annotations

from collections.abc import Iterable

from ccb.tunnel.errors import UsageError

from ..model import Arguments
from ..option_values import shortened


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
    """See `tool_traits.no_such_tool`."""
    from ccb.tunnel.wire.tool_traits import no_such_tool as told  # most starts name no tools

    return told(shortened(name))


def _nearest(name: str) -> str:
    import difflib

    from ccb.tunnel.wire.tool_traits import BUILT_IN

    near = difflib.get_close_matches(name, BUILT_IN, n=1, cutoff=0.6)
    return near[0] if near else ""
