"""/compact, /clear, /context, /init, /memory, /agents: what reads or changes the context of the model."""

from __future__ import annotations

import asyncio

from ccb.tunnel.wire.session_options import LAPTOP_COMMANDS, SETUP_COMMAND

from ..model.model_request import SMALL
from ..slash_commands.command_registry import CommandCall, CommandRefused, Expanded, Printed, SlashCommand
from ..subagents.sub_agents import SubAgents
from ..tools.agent_definitions import AgentDefinition
from .session import Session

_LISTED = (
    ("cost", "Show the tokens and the cost of this session", ""),
    ("help", "List the commands", ""),
    ("mcp", "List the MCP servers with their state", ""),
    ("model", "Show or change the model", "[name]"),
    ("status", "Show session, host, model and mode", ""),
)


def register_session_commands(session: Session) -> None:
    async def on_laptop(call: CommandCall) -> Printed:
        here = ", ".join(f"/{each.name}" for each in commands.commands)
        raise CommandRefused(f"It belongs to the screen of ccb (`ccb` without -p). Here there are {here}.")

    async def by_laptop(_: CommandCall) -> Printed:
        raise CommandRefused("ccb on the laptop carries it out, and the one there is too old: update it.")

    async def setup(_: CommandCall) -> Printed:
        return Printed("The hooks of the start have run.")

    commands = session.agent.commands
    commands.reserve(SlashCommand(SETUP_COMMAND[1:], "", setup, local=True))
    for name, does, hint in _LISTED:
        commands.register(SlashCommand(name, does, by_laptop, hint, local=True))
    for name in LAPTOP_COMMANDS.split():  # those that are listed, too: a registered command goes first
        commands.reserve(SlashCommand(name, "", on_laptop, local=True))


_INIT = """\
Look at this project and write a CLAUDE.md in its top directory for agents that will work here. If there is one, \
improve it and keep what is right in it. Read the manifest, the build and test configuration, the README and the rules \
of other agents (AGENTS.md, .cursorrules, .github/copilot-instructions.md) first.

Write down, briefly: the commands to build, lint and test, also for a single test; the architecture that takes several \
files to understand; conventions that cannot be seen in one file. Leave out what anybody can see at once, general \
advice, and anything that you have not verified. Refer to long documents with @path instead of repeating them."""


def register_context_commands(session: Session) -> None:
    commands, agent = session.agent.commands, session.agent

    async def compact(call: CommandCall) -> Printed:
        return Printed(await agent.compact(call.arguments))

    async def clear(_: CommandCall) -> Printed:
        await agent.clear()
        return Printed("")

    async def context(_: CommandCall) -> Printed:
        return Printed((await agent.context_report()).text())

    async def init(call: CommandCall) -> Expanded:
        return Expanded([{"type": "text", "text": f"{_INIT}\n\n{call.arguments}".strip()}])

    async def memory(_: CommandCall) -> Printed:
        return Printed(await _memory(session))

    hint = "[what to keep]"
    commands.register(SlashCommand("compact", "Replace the conversation by a summary", compact, hint, local=True))
    commands.register(SlashCommand("clear", "Forget the conversation and begin anew", clear, local=True))
    commands.register(SlashCommand("context", "Show what fills the model's window", context, local=True))
    commands.register(SlashCommand("init", "Write a CLAUDE.md for this project", init, "[what matters]"))
    commands.register(SlashCommand("memory", "List the instruction files in force", memory, local=True))


async def _memory(session: Session) -> str:
    from ..context.instructions import find_instructions
    from ..context.system_prompt import instruction_sources

    context = session.agent.config.context
    sources = instruction_sources(session.options)
    files = await asyncio.get_running_loop().run_in_executor(
        None, find_instructions, context.cwd, context.cages.home, sources
    )
    if not files:
        return "There are no instruction files. /init writes a CLAUDE.md for this project."
    lines = [f"  {each.path}  ({each.scope}, {len(each.text):,} characters)" for each in files]
    return "\n".join(["Instruction files, the last one counts most:", *lines, "A new session reads them again."])


_SMALL = "the small model"
_WHOSE = {"user": "yours, from the laptop", "project": "of the project", "client": "of the client"}
_MAX_DESCRIPTION = 300  # characters


def agents_command(sub_agents: SubAgents) -> SlashCommand:
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
