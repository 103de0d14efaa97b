"""The hooks of an agent that is about to stop."""

from __future__ import annotations

from typing import Any

from ..hooks.outcome import NOTHING, HookOutcome
from ..hooks.table import STOP, SUBAGENT_STOP
from .deps import AgentDeps
from .recorder import Recorder
from .state import Ending, LoopState

Json = dict[str, Any]

MOST_STOP_BLOCKS = 10
"""How often in one turn Stop hooks may let an agent go on."""


async def before_stop(deps: AgentDeps, recorder: Recorder, ending: Ending, state: LoopState) -> HookOutcome:
    """Run the Stop hooks, those of SubagentStop for a sub-agent. They learn whether the agent goes on already because
    of them."""
    if deps.hooks is None:
        return NOTHING
    event = SUBAGENT_STOP if recorder.agent_id else STOP
    payload: Json = {"stop_hook_active": state.stop_blocks > 0, "last_assistant_message": ending.text}
    return await deps.hooks.run(event, payload, agent_id=recorder.agent_id)
