"""The prompts of MCP servers as slash commands: `/mcp__server__prompt first second`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial

from ccb.tunnel.wire.mcp_messages import tool_name

from ..mcp.mcp_client import McpError
from ..mcp.mcp_servers import McpServers
from ..mcp.mcp_tools import tool_result
from .command_registry import CommandCall, CommandRefused, Expanded, SlashCommand

_MAX_DESCRIPTION = 1000


def prompt_commands(servers: McpServers) -> Iterator[SlashCommand]:
    """Yield the commands for all prompts of the connected servers."""
    for server, prompts in servers.prompts.items():
        for each in prompts:
            name, listed = each.get("name"), each.get("arguments")
            arguments = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
            wanted = {str(one["name"]): one.get("required") is True for one in arguments if one.get("name")}
            if isinstance(name, str) and name:
                hint = " ".join(f"<{a}>" if required else f"[{a}]" for a, required in wanted.items())
                described = str(each.get("description") or name)[:_MAX_DESCRIPTION]
                run = partial(_run, servers, server, name, wanted)
                yield SlashCommand(tool_name(server, name), described, run, hint[:200], "mcp")


async def _run(servers: McpServers, server: str, name: str, wanted: dict[str, bool], call: CommandCall) -> Expanded:
    try:
        values = shlex.split(call.arguments)
    except ValueError:  # a quote that is not closed
        values = call.arguments.split()
    if len(values) > len(wanted) > 0:  # the last one takes the rest
        values[len(wanted) - 1 :] = [" ".join(values[len(wanted) - 1 :])]
    given = dict(zip(wanted, values))
    missing = [each for each, required in wanted.items() if required and each not in given]
    if missing:
        raise CommandRefused(f"/{call.name} needs {', '.join(missing)}.")
    client = servers.clients.get(server)
    if client is None:
        raise CommandRefused(f"The MCP server {server} is not connected.")
    try:
        messages = (await client.prompt(name, given)).get("messages")
    except McpError as error:
        raise CommandRefused(f"The MCP server {server} gives no prompt {name}: {error}") from None
    parts = [each.get("content") for each in messages if isinstance(each, dict)] if isinstance(messages, list) else []
    found = tool_result({"content": parts}).content
    blocks = [{"type": "text", "text": found}] if isinstance(found, str) else found
    return Expanded([*blocks, *call.attached])
