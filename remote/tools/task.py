"""Task: hands a part of the work to a sub-agent, which has a context of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ccb.tunnel.wire import tool_traits

from .agent_definitions import BUILT_IN_AGENTS, WORKTREE, AgentDefinition
from .tool_contract import Tool, ToolContext, ToolDeclaration, ToolResult

Json = dict[str, Any]

_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "description": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "The task in three to five words, for the user",
        },
        "prompt": {"type": "string", "minLength": 1, "description": "The whole task for the agent"},
        "subagent_type": {
            "type": "string",
            "description": f"The agent; {tool_traits.DEFAULT_AGENT} if left out",
        },
        "model": {"type": "string", "description": "sonnet, opus, haiku or the id of a model; usually left out"},
        "run_in_background": {
            "type": "boolean",
            "description": "Return at once; you are told when the agent ends",
        },
        "isolation": {
            "type": "string",
            "enum": [WORKTREE],
            "description": "Work in a git worktree of its own, on a new branch from the last commit",
        },
        "resume": {
            "type": "string",
            "description": "The agentId of an agent that has ended: it goes on with all that it knows",
        },
    },
    "required": ["description", "prompt"],
    "additionalProperties": False,
}

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
