"""MCP servers that files on the host describe: as commands of this host and addresses that it reaches."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Collection, Mapping
from functools import partial
from typing import Callable, Union

from ccb.tunnel.wire.mcp_messages import LIMIT_VARIABLE, SERVER_NAME, filled_in, limit_of
from ccb.tunnel.wire.policy_patterns import NOT_ALLOWED, is_allowed

from ..settings.worker_settings import WorkerSettings
from ..system.host import Host
from .mcp_client import Json, McpChannel, RefusedChannel
from .mcp_http import HttpChannel, ServerAddress
from .mcp_servers import McpServers
from .mcp_stdio import ServerCommand, StdioChannel

Wanted = Union[ServerCommand, ServerAddress, str]
"""How a server is reached, or why it is not."""
Forms = Callable[[str, Json], Awaitable[Json]]

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def channels_to(wanted: Mapping[str, Wanted], servers: McpServers, host: Host, forms: Forms) -> dict[str, McpChannel]:
    """Return a channel to each of these servers. `forms` answers what one of them, by its name, wants to know."""
    channels: dict[str, McpChannel] = {}
    for name, each in wanted.items():
        heard, ask = partial(servers.said, name), partial(forms, name)
        if isinstance(each, str):
            channels[name] = RefusedChannel(each)
        elif isinstance(each, ServerCommand):
            channels[name] = StdioChannel(name, each, host, heard, ask)
        else:
            channels[name] = HttpChannel(name, each, heard, ask)
    return channels


def project_servers(settings: WorkerSettings, cwd: str, environ: Mapping[str, str]) -> dict[str, Wanted]:
    """Return the servers that may start, by name. What they are described by may name variables of `environ`."""
    found: dict[str, Wanted] = {}
    disabled, enabled = _names(settings, "disabledMcpjsonServers"), _names(settings, "enabledMcpjsonServers")
    environ = {**environ, **settings.env}
    everything = settings.value("enableAllProjectMcpServers")
    if everything is not None and everything.value is True:
        enabled = None
    for name, sourced in settings.mcp_servers.items():
        if sourced.layer.on_host and name not in (disabled or ()) and (enabled is None or name in enabled):
            found[name] = wanted_server(name, sourced.value, environ, cwd, settings)
    return found


def wanted_server(name: str, given: object, environ: Mapping[str, str], cwd: str, settings: WorkerSettings) -> Wanted:
    """Return how a server is reached that files describe, or why it is not. It gets the variables of `settings`."""
    try:
        found = _wanted(name, given, environ, cwd, settings.env)
        reached = found.url if isinstance(found, ServerAddress) else shlex.join(found.argv)
        return found if is_allowed(reached, settings.bound("mcpServers")) else NOT_ALLOWED.format(name)
    except KeyError as error:
        return f"the variable {error.args[0]} is not set"
    except ValueError as error:
        return str(error)


def _names(settings: WorkerSettings, key: str) -> Collection[str] | None:
    lists = [each.value for each in settings.each(key) if isinstance(each.value, list)]
    return {str(name) for names in lists for name in names} if lists else None


def _wanted(
    name: str, described: object, environ: Mapping[str, str], cwd: str, shared: Mapping[str, str]
) -> ServerCommand | ServerAddress:
    if not SERVER_NAME.fullmatch(name):
        raise ValueError("a name has letters, digits, - and single _ only, at most 64 of them")
    if not isinstance(described, dict):
        raise ValueError("it is not described by an object")
    if {"command", "url"} <= described.keys():  # the question about trust shows one of them
        raise ValueError("it has a command and a url, and only one of them can count")
    kind = described.get("type", "http" if "url" in described else "stdio")
    if kind == "http":
        return _address(described, environ)
    if kind != "stdio":
        raise ValueError(f"ccb knows no servers of the type {str(kind)[:40]!r}, only stdio and http")
    command, args, env = described.get("command"), described.get("args", []), described.get("env", {})
    if not (isinstance(command, str) and command and isinstance(args, list) and isinstance(env, dict)):
        raise ValueError("it needs a command, a list of args, and an object env")
    argv = tuple(filled_in(str(each), environ) for each in (command, *args))
    own = {str(key): filled_in(str(value), environ) for key, value in env.items()}
    variables = {**shared, "CLAUDE_PROJECT_DIR": cwd, **own}
    return ServerCommand(argv, cwd, variables, limit_of(described.get("timeout"), environ.get(LIMIT_VARIABLE)))


def _address(described: Json, environ: Mapping[str, str]) -> ServerAddress:
    url, headers = described.get("url"), described.get("headers", {})
    if not (isinstance(url, str) and isinstance(headers, dict)):
        raise ValueError("it needs a url, and an object headers")
    given = {str(key): filled_in(str(value), environ) for key, value in headers.items()}
    if not all(_HEADER.fullmatch(key) and value.isprintable() for key, value in given.items()):
        raise ValueError("a header has characters that no header can have")
    limit = limit_of(described.get("timeout"), environ.get(LIMIT_VARIABLE))
    return ServerAddress(filled_in(url, environ), given, limit)
