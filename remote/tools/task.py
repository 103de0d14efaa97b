"""Task: hands a part of the work to a sub-agent, which has a context of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ccb.tunnel.wire import tool_traits

from .agent_definitions import BUILT_IN_AGENTS, WORKTREE, AgentDefinition
from .input_schema import choice, flag, object_of, text
from .tool_contract import Tool, ToolContext, ToolDeclaration, ToolResult

Json = dict[str, Any]

_SCHEMA = object_of(
    {
        "description": text("The task in three to five words, for the user", 1, 200),
        "prompt": text("The whole task for the agent", 1),
        "subagent_type": text(f"The agent; {tool_traits.DEFAULT_AGENT} if left out"),
        "model": text("sonnet, opus, haiku or the id of a model; usually left out"),
        "run_in_background": flag("Return at once; you are told when the agent ends"),
        "isolation": choice("Work in a git worktree of its own, on a new branch from the last commit", WORKTREE),
        "resume": text("The agentId of an agent that has ended: it goes on with all that it knows"),
    },
    "description",
    "prompt",
)

_DESCRIPTION = """\
Starts an agent that works on a task by itself and returns its answer. It has a context of its own: it sees nothing of \
this conversation, and only its answer comes back to you.
Agents:
{agents}
- Use one for a search that may take many steps, and for parts of the work that do not need each other. To read a \
known file or find one name, use the tools yourself.
- Several calls in one message run at the same time.
- Write into the prompt everything that the agent must know, whether it may change files, and what it should answer.
- The user does not see the answer: say what matters of it. Check what an agent says it has changed."""


class TaskTool(Tool):
    """Starts one of `agents`."""

    def __init__(self, agents: Iterable[AgentDefinition] = BUILT_IN_AGENTS) -> None:
        listed = "\n".join(f"- {agent.name}: {agent.description}" for agent in agents)
        self.declaration = ToolDeclaration(tool_traits.TASK, _DESCRIPTION.format(agents=listed), _SCHEMA)

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        if context.sub_agents is None:
            return "No agent can be started here."
        return context.sub_agents.refusal(tool_input)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        assert context.sub_agents is not None
        return await context.sub_agents.run(tool_input, context)
