"""The MCP servers that the definition of an agent brings: they are started on the host for it, and end with it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Callable

from ..agent.deps import AgentConfig
from ..mcp.forms import ServerForms
from ..mcp.project import HostServers, Wanted, wanted_server
from ..mcp.servers import OF_AGENT, McpServers
from ..settings.worker_settings import WorkerSettings
from ..system.process import without_ccb
from ..tools.agents.definition import AgentDefinition
from .catalogue import CLIENT

_MAX_ERROR = 1000  # characters
_STRICT = "this session uses only those of --mcp-config"


def own_servers(
    definition: AgentDefinition, taken: Collection[str], settings: WorkerSettings, cwd: str, *, strict: bool
) -> tuple[dict[str, Wanted], list[str]]:
    """Return the servers to start, and what the person is told of others. The session has those that are `taken`.
    `strict`: no file adds servers (--strict-mcp-config)."""
    environ = {**without_ccb(os.environ), **settings.env}
    wanted: dict[str, Wanted] = {}
    told: list[str] = []
    for name, described in definition.servers:
        if described is None and name not in taken:
            told.append(
                f"The agent {definition.name} names the MCP server {name[:100]}, which the session does not have."
            )
        elif described is not None and name in taken:
            told.append(f"The MCP server {name} of the session is used, and not the one that the agent calls so.")
        elif described is not None and strict and definition.source != CLIENT:
            told.append(f"The MCP server {name[:100]} of the agent {definition.name} does not start: {_STRICT}.")
        elif described is not None:
            wanted[name] = wanted_server(name, described, environ, cwd, settings.env)
    return wanted, told


@asynccontextmanager
async def running_servers(
    definition: AgentDefinition,
    config: AgentConfig,
    above: McpServers | None,
    forms: ServerForms,
    say: Callable[[str], None],
    *,
    strict: bool,
) -> AsyncIterator[McpServers | None]:
    """Run the servers of an agent with this configuration, which gets their tools; None if it brings none. The servers
    `above` are those of the session. `strict`: see `own_servers`."""
    taken = [str(each["name"]) for each in above.summary()] if above is not None else []
    wanted, told = own_servers(definition, taken, config.settings, config.context.cwd, strict=strict)
    for text in told:
        say(text)
    if not wanted:
        yield None
        return
    servers = McpServers(config.tools, above=above)
    HostServers(servers, OF_AGENT, config.context.host, forms).use(wanted)
    try:
        await servers.ready()
        for each in servers.status():
            if each.get("error"):
                why = str(each["error"])[:_MAX_ERROR]
                say(f"The MCP server {each['name'][:100]} of the agent {definition.name} is not connected: {why}.")
            elif each.get("note"):
                say(f"The MCP server {each['name'][:100]} of the agent {definition.name}: {each['note']}.")
        yield servers
    finally:
        await servers.close()
