"""The slash commands about a session for clients without a screen of ccb: /cost, /help, /mcp, /model and /status; and
the names of those that only a screen has, so that they do not reach the model as text."""

from __future__ import annotations

import os
import sys
from typing import Any

from ccb.tunnel.wire.models import ALIASES, ESTIMATED
from ccb.tunnel.wire.options import SETUP_COMMAND

from ...commands.registry import CommandCall, CommandRefused, Printed, SlashCommand
from ..session import Session

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
    if not session.agent.config.names.may_be(name):
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
