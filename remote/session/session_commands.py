"""/compact, /clear, /context, /init, /memory, /agents."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from ccb.tunnel.wire.model_facts import ALIASES, ESTIMATED
from ccb.tunnel.wire.session_options import SETUP_COMMAND

from ..model.model_request import SMALL
from ..slash_commands.command_registry import CommandCall, CommandRefused, Expanded, Printed, SlashCommand
from ..subagents.sub_agents import SubAgents
from ..tools.agent_definitions import AgentDefinition
from .session import Session

Json = dict[str, Any]

ON_SCREEN = """
? bug config copy diff doctor effort exit export get hosts keys mode new open paste permissions put queue quit reconnect
rename resume revoke rewind sessions stop tasks theme thinking tools transcript trust vim"""
"""The commands of the REPL that have no counterpart here."""

_INPUT = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens")


def register_session_commands(session: Session) -> None:
    """Register the commands."""

    async def cost(_: CommandCall) -> Printed:
        return Printed(_cost(session))

    async def help_(_: CommandCall) -> Printed:
        return Printed(
            "\n".join(f"/{each.name} {each.hint}".ljust(24) + each.description for each in commands.commands)
        )

    async def mcp(_: CommandCall) -> Printed:
        return Printed(_servers(session))

    async def model(call: CommandCall) -> Printed:
        return Printed(_model(session, call.arguments))

    async def status(_: CommandCall) -> Printed:
        return Printed(_status(session))

    async def on_screen(call: CommandCall) -> Printed:
        here = ", ".join(f"/{each.name}" for each in commands.commands)
        raise CommandRefused(f"It belongs to the screen of ccb (`ccb` without -p). Here there are {here}.")

    async def setup(_: CommandCall) -> Printed:
        return Printed("The hooks of the start have run.")

    commands = session.commands
    commands.reserve(SlashCommand(SETUP_COMMAND[1:], "", setup, local=True))
    for name, does, run, hint in (
        ("cost", "Show the tokens and the cost of this session", cost, ""),
        ("help", "List the commands", help_, ""),
        ("mcp", "List the MCP servers with their state", mcp, ""),
        ("model", "Show or change the model", model, "[name]"),
        ("status", "Show session, host, model and mode", status, ""),
    ):
        commands.register(SlashCommand(name, does, run, hint, local=True))
    for name in ON_SCREEN.split():
        commands.reserve(SlashCommand(name, "", on_screen, local=True))


def _cost(session: Session) -> str:
    spent = session.log.usage.spent
    models = spent["modelUsage"]
    lines = [_used("", models.values(), spent["total_cost_usd"])]
    if len(models) > 1:
        lines += [_used(f"  {name}: ", [each], each.get("costUSD", 0)) for name, each in models.items()]
    return "\n".join(lines)


def _used(prefix: str, usages: Any, cost: float) -> str:
    into = sum(each.get(name, 0) for each in usages for name in _INPUT)
    about = "about " if any(each.get(ESTIMATED) for each in usages) else ""
    out = sum(each.get("outputTokens", 0) for each in usages)
    return f"{prefix}{about}{into:,} tokens in, {out:,} out, ${cost:.4f}"


def _servers(session: Session) -> str:
    return "\n".join(map(_server, session.clients.status)) or "There is no MCP server."


def _server(state: Json) -> str:
    again = f"; next try in {state['retryInSeconds']} s" if "retryInSeconds" in state else ""
    return f"{state['name']}: {state['status']}" + (f" ({state['error']}{again})" if state.get("error") else "")


def _model(session: Session, name: str) -> str:
    if not name:
        return f"Model: {session.agent.model}"
    if not session.agent.config.models.names.may_be(name):
        raise CommandRefused(f"{name[:100]} is no model: it is {', '.join(ALIASES)}, or the full id of a model.")
    session.agent.set_model(name)
    return f"Model: {session.agent.model}, from the next model call on"


def _status(session: Session) -> str:
    agent = session.agent
    permissions, cwd = agent.config.permissions, agent.config.context.cwd
    facts = {
        "Session": session.id,
        "Directory": f"{cwd} on {os.uname().nodename}",
        "Worker": f"pid {os.getpid()}, Python {sys.version.split()[0]}",
        "Model": agent.model,
        "Mode": permissions.mode,
        "Sandbox": permissions.cage_in_force,
        "Used": _cost(session).partition("\n")[0],
    }
    return "\n".join(f"{name:<12}{value}" for name, value in facts.items())


_INIT = """\
Look at this project and write a CLAUDE.md in its top directory for agents that will work here. If there is one, \
improve it and keep what is right in it. Read the manifest, the build and test configuration, the README and the rules \
of other agents (AGENTS.md, .cursorrules, .github/copilot-instructions.md) first.

Write down, briefly: the commands to build, lint and test, also for a single test; the architecture that takes several \
files to understand; conventions that cannot be seen in one file. Leave out what anybody can see at once, general \
advice, and anything that you have not verified. Refer to long documents with @path instead of repeating them."""


def register_context_commands(session: Session) -> None:
    """Register the commands."""
    commands, agent = session.commands, session.agent

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
    """Return the list of the instruction files that a new session here would read."""
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
