"""Reads files for the model, with the tools' own code and the permissions of the agent. Nobody is asked: what would
need a question is left out."""

from __future__ import annotations

import logging
from typing import Any

from ...permissions.decision import Behavior
from ...tools.contract import CallContext, ToolResult
from ..deps import AgentConfig
from ..state import AgentState
from ..tool_calls.call import ParsedCall
from ..tool_calls.permission import decide

Json = dict[str, Any]

_log = logging.getLogger(__name__)


async def run_unasked(
    config: AgentConfig, agent: AgentState, name: str, given: Json, *, wanted: bool = False
) -> ToolResult | None:
    """Return the result of a tool that only reads; None if it may not run without a question, or finds nothing to read.
    The result of a tool that has a bug says so. `wanted`: the person has named what is read, so a question has its
    answer."""
    tool = agent.tools.get(name)
    if tool is None:
        return None
    try:
        decision = decide(config, ParsedCall("", tool, given), can_ask=wanted)
        if decision.behavior is Behavior.DENY or (decision.behavior is Behavior.ASK and not wanted):
            return None
        context = config.context.for_call(CallContext(cage=decision.cage, pinned=decision.pinned))
        result = await tool.run(given, context)
    except Exception as error:  # noqa: BLE001 - a tool's bug is a result, the model goes on
        _log.exception("%s failed for the model", name)
        return ToolResult(f"ccb could not read it, because of a bug: {type(error).__name__}: {error}")
    return None if result.is_error else result


def cut(text: str, size: int) -> str:
    """Return the text within a number of characters, cut at a line end."""
    if len(text) <= size:
        return text
    return text[:size].rpartition("\n")[0] + "\n(cut here)"
