"""MCP servers that files on the host describe: as commands of this host and addresses that it reaches."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Callable, Union

from ccb.tunnel.wire.mcp_messages import LIMIT_VARIABLE, limit_of

from ..settings.worker_settings import WorkerSettings
from ..system.host import Host
from ..system.process import without_ccb
from ..tools.tool_contract import ToolContext
from .mcp_client import Channel, Json, RefusedChannel, ServerForms
from .mcp_servers import ON_HOST, McpServers, ServerPlace
from .mcp_stdio import ServerCommand, StdioChannel

if TYPE_CHECKING:
    from .mcp_http import ServerAddress

Wanted = Union[ServerCommand, "ServerAddress", str]
"""How a server is reached, or why it is not."""

_NAME = re.compile(r"(?=.{1,64}\Z)[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
"""A rule for `mcp__notes` must not cover the tools of a server `notes__more`."""

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]{0,1000}))?\}")


class ProjectChannels:
    """Keeps the servers of the project as they are, as long as the files say the same of them. `say` tells the person
    which of them give way to the person's own; `forms` asks them for what a server wants to know."""

    def __init__(
        self, servers: McpServers, context: ToolContext, forms: ServerForms, say: Callable[[str], None]
    ) -> None:
        self._group = HostServers(servers, ON_HOST, context.host, forms)
        self._context = context
        self._say = say
        self._settings: WorkerSettings | None = None
        self._taken: Collection[str] = ()

    def use(self, settings: WorkerSettings, taken: Collection[str]) -> None:
        """Use the servers of these settings, except for names that are `taken`."""
        if settings is self._settings and taken == self._taken:
            return
        self._settings, self._taken = settings, taken
        wanted = project_servers(settings, self._context.cwd, without_ccb(os.environ))
        for name in [each for each in wanted if each in taken]:
            del wanted[name]
            self._say(f"Your own MCP server {name} is used, and not the one that the project calls so.")
        self._group.use(wanted)


class HostServers:
    """Keeps a group of servers of this host, or that it reaches, as they are, as long as they are described alike."""

    def __init__(self, servers: McpServers, place: ServerPlace, host: Host, forms: ServerForms) -> None:
        self._servers = servers
        self._place = place
        self._host = host
        self._forms = forms
        self._wanted: Mapping[str, Wanted] = {}
        self._channels: dict[str, Channel] = {}

    def use(self, wanted: Mapping[str, Wanted]) -> None:
        """Start these servers, and end those of the last call that are not among them."""
        same = {name: each for name, each in self._channels.items() if self._wanted.get(name) == wanted.get(name)}
        self._servers.use(self._place, same)
        self._channels = {name: same.get(name) or self._channel(name, each) for name, each in wanted.items()}
        self._wanted = wanted
        limits = {name: each.call_s for name, each in wanted.items() if not isinstance(each, str)}
        self._servers.use(self._place, self._channels, limits)

    def _channel(self, name: str, wanted: Wanted) -> Channel:
        if isinstance(wanted, str):
            return RefusedChannel(wanted)
        heard, ask = partial(self._servers.said, name), partial(self._forms.answer, name)
        if isinstance(wanted, ServerCommand):
            return StdioChannel(name, wanted, self._host, heard, ask)
        from .mcp_http import HttpChannel

        return HttpChannel(name, wanted, heard, ask)


def project_servers(settings: WorkerSettings, cwd: str, environ: Mapping[str, str]) -> dict[str, Wanted]:
    """Return the servers that may start, by name. `${NAME}` and `${NAME:-default}` stand for variables of `environ`."""
    found: dict[str, Wanted] = {}
    disabled, enabled = _names(settings, "disabledMcpjsonServers"), _names(settings, "enabledMcpjsonServers")
    environ = {**environ, **settings.env}
    everything = settings.value("enableAllProjectMcpServers")
    if everything is not None and everything.value is True:
        enabled = None
    for name, sourced in settings.mcp_servers.items():
        if sourced.layer.on_host and name not in (disabled or ()) and (enabled is None or name in enabled):
            found[name] = wanted_server(name, sourced.value, environ, cwd, settings.env)
    return found


def wanted_server(name: str, given: object, environ: Mapping[str, str], cwd: str, shared: Mapping[str, str]) -> Wanted:
    """Return how a server is reached that files describe, or why it is not. It gets the variables `shared`."""
    try:
        return _wanted(name, given, environ, cwd, shared)
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
    if not _NAME.fullmatch(name):
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
    argv = tuple(_expanded(each, environ) for each in (command, *args))
    own = {str(key): _expanded(value, environ) for key, value in env.items()}
    variables = {**shared, "CLAUDE_PROJECT_DIR": cwd, **own}
    return ServerCommand(argv, cwd, variables, limit_of(described.get("timeout"), environ.get(LIMIT_VARIABLE)))


def _address(described: Json, environ: Mapping[str, str]) -> ServerAddress:
    from .mcp_http import ServerAddress

    url, headers = described.get("url"), described.get("headers", {})
    if not (isinstance(url, str) and isinstance(headers, dict)):
        raise ValueError("it needs a url, and an object headers")
    given = {str(key): _expanded(value, environ) for key, value in headers.items()}
    if not all(_HEADER.fullmatch(key) and value.isprintable() for key, value in given.items()):
        raise ValueError("a header has characters that no header can have")
    limit = limit_of(described.get("timeout"), environ.get(LIMIT_VARIABLE))
    return ServerAddress(_expanded(url, environ), given, limit)


def _expanded(value: object, environ: Mapping[str, str]) -> str:
    def variable(match: re.Match[str]) -> str:
        found = environ.get(match[1])
        if found is None and match[2] is None:
            raise KeyError(match[1])
        return found or match[2] or ""

    return _VARIABLE.sub(variable, str(value))
