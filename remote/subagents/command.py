"""/agents: which agents the main agent can start."""

from __future__ import annotations

from ..commands.registry import CommandCall, Printed, SlashCommand
from ..model.models import SMALL
from ..tools.agents.definition import AgentDefinition
from .sub_agents import SubAgents

_SMALL = "the small model"
_WHOSE = {"user": "yours, from the laptop", "project": "of the project", "client": "of the client"}
_MAX_DESCRIPTION = 300  # characters


def agents_command(sub_agents: SubAgents) -> SlashCommand:
    """Return the command that lists the agents of a session."""

    async def run(_: CommandCall) -> Printed:
        return Printed("\n".join(map(_line, sub_agents.definitions)))

    return SlashCommand("agents", "List the agents that can be started with Task", run, local=True)


def _line(agent: AgentDefinition) -> str:
    facts = [
        _WHOSE.get(agent.source, agent.source),
        _SMALL if agent.model == SMALL else f"model {agent.model}" if agent.model else "",
    ]
    if agent.read_only:
        facts.append("only reads")
    if agent.isolation:
        facts.append("in a worktree of its own")
    if agent.tools is not None:
        facts.append(f"tools {', '.join(agent.tools) or 'none'}")
    if agent.permission_mode:
        facts.append(f"mode {agent.permission_mode} at most")
    return f"{agent.name} ({'; '.join(filter(None, facts))}): {agent.description[:_MAX_DESCRIPTION]}"
