"""The MCP servers of a session or an agent, and the tools that read their resources."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import field
from itertools import chain, repeat
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.mcp_messages import WANTS_LOGIN
from ccb.tunnel.wire.outside_messages import PUSHED, pushed_text
from ccb.tunnel.wire.tool_traits import LIST_MCP_RESOURCES, READ_MCP_RESOURCE, RunsOn

from ..context.reminders import Occasion
from ..tools.tool_contract import Tool, ToolContext, ToolDeclaration, ToolResult
from ..tools.toolset import Toolset
from .mcp_client import HANDSHAKE_S, STARTS_AGAIN, UNKNOWN, Json, McpChannel, McpClient, McpError
from .mcp_tools import McpTool, tool_result

_SERVER: Json = {"type": "string", "description": "The name of the MCP server"}
_SHOWN = ("uri", "name", "title", "mimeType", "description")


class _ResourceTool(Tool):
    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    @property
    def _clients(self) -> dict[str, McpClient]:
        """The servers that have resources."""
        return {name: client for name, client in self._servers.clients.items() if "resources" in client.offers}


class ListMcpResources(_ResourceTool):
    """Lists what the servers have to read."""

    declaration = ToolDeclaration(
        LIST_MCP_RESOURCES,
        "Lists the resources of MCP servers, of all or of one. Each comes with its server and its URI.",
        {"type": "object", "properties": {"server": _SERVER}},
    )

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        wanted = tool_input.get("server")
        lines = []
        for name, client in self._clients.items():
            if wanted not in (None, name):
                continue
            try:
                for each in await client.listed("resources"):
                    shown = {key: each[key] for key in _SHOWN if each.get(key)}
                    lines.append(json.dumps({"server": name, **shown}, ensure_ascii=False))
            except McpError as error:
                lines.append(f"{name}: {error}")
        return ToolResult("\n".join(lines) or "There are no resources.")


class ReadMcpResource(_ResourceTool):
    """Reads one resource."""

    declaration = ToolDeclaration(
        READ_MCP_RESOURCE,
        "Reads a resource of an MCP server.",
        {
            "type": "object",
            "properties": {"server": _SERVER, "uri": {"type": "string", "description": "The URI of the resource"}},
            "required": ["server", "uri"],
        },
    )

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        clients = self._clients
        name, uri = tool_input["server"], tool_input["uri"]
        if name not in clients:
            known = ", ".join(clients) or "none"
            return ToolResult(f"No MCP server {name} with resources is connected. These are: {known}", is_error=True)
        try:
            contents = (await clients[name].read(uri)).get("contents")
        except McpError as error:
            return ToolResult(f"{uri} of {name} cannot be read: {error}", is_error=True)
        listed = contents if isinstance(contents, list) else []
        return tool_result({"content": [_part(each) for each in listed if isinstance(each, dict)]}, context.spill)


def _part(content: Json) -> Json:
    if isinstance(content.get("blob"), str):
        return {"type": "image", "data": content["blob"], "mimeType": content.get("mimeType", "unknown")}
    return {"type": "text", "text": str(content.get("text", ""))}


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerPlace:
    """Where a group of servers is from. Clients are told `scope` and `kind`; a handshake may take `start_s`."""

    group: str
    scope: str
    kind: str
    runs_on: RunsOn
    start_s: float = HANDSHAKE_S


IN_CLIENT = ServerPlace("client", "dynamic", "sdk", RunsOn.CLIENT)
ON_LAPTOP = ServerPlace("laptop", "user", "laptop", RunsOn.LAPTOP)
ON_HOST = ServerPlace("host", "project", "stdio", RunsOn.HOST, 30.0)
OF_AGENT = ServerPlace("agent", "agent", "stdio", RunsOn.HOST, 30.0)

_WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 300.0, 900.0)
"""Seconds before each new try to connect a server that may come back; the last one counts for all that follow."""

_MAX_INSTRUCTIONS = 2048  # characters of what a server tells the model
_MAX_NAMED = 5  # tools in one line
_MAX_PUSHED = 256  # messages of a channel that wait
_ROUNDS = 3
"""How often the lists of a server are read when it says each time that they have changed meanwhile."""


@dataclass(eq=False)
class _Server:
    name: str
    place: ServerPlace
    channel: McpChannel
    status: str = "pending"  # pending, connected, failed, needs-auth or disabled
    error: str = ""
    info: Json = field(default_factory=dict)
    tools: dict[str, McpTool] = field(default_factory=dict)
    note: str = ""  # what is odd about its tools
    client: McpClient | None = None  # once it is connected
    prompts: list[Json] = field(default_factory=list)
    has_news: bool = False  # it has said that its lists have changed
    task: asyncio.Task[None] | None = None
    retrying: asyncio.Task[None] | None = None
    next_try: float = 0.0  # on the monotonic clock, while it is retried
    pushed: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_PUSHED))
    pushing: asyncio.Task[None] | None = None


class McpServers:
    """A server that cannot be connected is only missing, and `status` says why. Resources of the servers `above` can be
    read, too. `push` takes the text that a server, by its name, pushes into the session."""

    def __init__(
        self,
        registry: Toolset,
        above: McpServers | None = None,
        push: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        self._registry = registry
        self._above = above
        self._push = push
        self._servers: dict[str, _Server] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._told: dict[str, str] = {}  # what the model knows of the instructions of each server

    def due(self, occasion: Occasion) -> Iterable[str]:
        """Return the instructions of servers that the model does not know yet. Follow this as a source of reminders."""
        if occasion is Occasion.COMPACTED:
            self._told = {}
        for name, client in self._own_clients.items():
            text = client.instructions.strip()[:_MAX_INSTRUCTIONS]
            if text and self._told.get(name) != text:
                self._told[name] = text
                yield f"How to use the tools of the MCP server {name}, in its own words:\n\n{text}"

    def use(self, place: ServerPlace, channels: Mapping[str, McpChannel]) -> None:
        """Make `channels` the servers of a group: connect the new ones, keep those that are described as before, and
        drop the others. A name that another group has stays with that group."""
        for server in [each for each in self._servers.values() if each.place.group == place.group]:
            channel = channels.get(server.name)
            if channel is None or channel.reaches != server.channel.reaches:
                self._drop(self._servers.pop(server.name))
        for name, channel in channels.items():
            if name not in self._servers:
                self._servers[name] = server = _Server(name, place, channel)
                self._connect(server)

    async def ready(self, patience_s: float | None = None) -> None:
        """Return when no server is pending, or after `patience_s`."""
        tasks = [each.task for each in self._servers.values() if each.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=patience_s)

    def reconnect(self, name: str) -> None:
        """Connect a server again. Raise KeyError."""
        self._connect(self._servers[name])

    def toggle(self, name: str, enabled: bool) -> None:
        """Switch a server on or off. Raise KeyError."""
        server = self._servers[name]
        if enabled and server.status == "disabled":
            self._connect(server)
        elif not enabled:
            self._drop(server)
            server.status = "disabled"

    def said(self, name: str, message: Json) -> None:
        """Take what a server says of its own accord: progress, that its lists have changed, a message of a channel."""
        server = self._servers.get(name)
        if server is None or server.status == "disabled":
            return
        method, params = message.get("method"), message.get("params")
        if method == "notifications/progress" and server.client is not None and isinstance(params, dict):
            server.client.heard_progress(params)
        elif method in ("notifications/tools/list_changed", "notifications/prompts/list_changed"):
            server.has_news = True
            if server.task is None and server.client is not None:
                server.task = asyncio.ensure_future(self._connected(server, server.client))
            elif server.task is None:
                self._connect(server)
        elif method == PUSHED and self._push is not None and isinstance(params, dict):
            server.pushed.append(pushed_text(params))
            if server.pushing is None:
                server.pushing = asyncio.ensure_future(self._pass_on(server, self._push))

    async def _pass_on(self, server: _Server, push: Callable[[str, str], Awaitable[None]]) -> None:
        while server.pushed:
            await push(server.name, server.pushed.popleft())
        server.pushing = None

    @property
    def clients(self) -> dict[str, McpClient]:
        return {**(self._above.clients if self._above is not None else {}), **self._own_clients}

    @property
    def _own_clients(self) -> dict[str, McpClient]:
        return {each.name: each.client for each in self._servers.values() if each.client is not None}

    @property
    def prompts(self) -> dict[str, list[Json]]:
        return {each.name: each.prompts for each in self._servers.values() if each.prompts}

    def summary(self) -> list[Json]:
        return [{"name": each.name, "status": each.status} for each in self._servers.values()]

    def connected(self, *also: str) -> list[str]:
        """Return the names of the servers that are connected, or in one of these other states."""
        return [str(each["name"]) for each in self.summary() if each["status"] in ("connected", *also)]

    def status(self) -> list[Json]:
        return [_described(each) for each in self._servers.values()]

    async def close(self) -> None:
        """Stop connecting, and end the servers that the worker has started."""
        for server in self._servers.values():
            self._drop(server)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _connect(self, server: _Server) -> None:
        _stop_trying(server)
        server.status, server.error, server.client = "pending", "", None
        server.task = asyncio.ensure_future(self._connected(server))

    async def _connected(self, server: _Server, client: McpClient | None = None) -> None:
        tools: list[McpTool] = []
        prompts: list[Json] = []
        try:
            if client is None:
                await server.channel.close()
                client = McpClient(server.channel, handshake_s=server.place.start_s)
                await client.connect()
            for _ in range(_ROUNDS):
                server.has_news = False
                tools = [McpTool(server.name, each, client, server.place.runs_on) for each in await client.tools()]
                server.note = _note(client.broken, [tool.called for tool in tools if tool.declaration.adapted])
                prompts = await _prompts(server.name, client)
                if not server.has_news:
                    break
            server.info, server.client, server.status, server.error = client.info, client, "connected", ""
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a server says, the session goes on without it
            log.warning("the MCP server %s is not connected: %s", server.name, error)
            server.error, refuses = repr(error), False
            if isinstance(error, McpError):  # no call was made, so what is said of calls is left out
                server.error = str(error).replace(UNKNOWN, "").replace(STARTS_AGAIN, "")
                refuses = error.status // 100 == 4  # it goes on doing so
            server.status = "needs-auth" if WANTS_LOGIN in server.error else "failed"
            server.client = None
            tools = []
            self._close(server)
            if server.retrying is None and server.channel.may_come_back and not refuses:
                server.retrying = asyncio.ensure_future(self._try_again(server))
        self._offer(server, {tool.name: tool for tool in tools})
        server.prompts = prompts
        server.task = None

    async def _try_again(self, server: _Server) -> None:
        for wait in chain(_WAITS_S, repeat(_WAITS_S[-1])):
            server.next_try = time.monotonic() + wait
            await asyncio.sleep(wait)
            await self._connected(server)
            if server.client is not None:
                break
        server.retrying = None

    def _offer(self, server: _Server, tools: dict[str, McpTool]) -> None:
        taken = {name for each in self._servers.values() if each is not server for name in each.tools}
        self._registry.remove(name for name in server.tools if name not in tools)
        server.tools = {name: tool for name, tool in tools.items() if name not in taken}
        self._registry.add(server.tools.values())
        if server.client is not None and "resources" in server.client.offers:
            for tool in (ListMcpResources(self), ReadMcpResource(self)):
                self._registry.redeclare(tool)

    def _drop(self, server: _Server) -> None:
        _stop_trying(server)
        self._registry.remove(server.tools)
        server.tools, server.prompts, server.client = {}, [], None
        self._close(server)

    def _close(self, server: _Server) -> None:
        closing = asyncio.ensure_future(server.channel.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _prompts(name: str, client: McpClient) -> list[Json]:
    try:
        return await client.listed("prompts")
    except McpError as error:
        log.warning("the prompts of the MCP server %s are not known: %s", name, error)
        return []


def _stop_trying(server: _Server) -> None:
    for task in (server.task, server.retrying, server.pushing):
        if task is not None:
            task.cancel()
    server.task = server.retrying = server.pushing = None
    server.pushed.clear()


def _note(broken: list[str], adapted: list[str]) -> str:
    notes = []
    for what, names in (
        ("left out, because they have no name or no schema", broken),
        ("described to the model in a form that its API takes", adapted),
    ):
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        notes += [f"{what}: {', '.join(names[:_MAX_NAMED])[:300]}{more}"] if names else []
    return "; ".join(notes)


def _described(server: _Server) -> Json:
    kind = server.channel.transport or server.place.kind
    body: Json = {
        "name": server.name,
        "status": server.status,
        "scope": server.place.scope,
        "transport": kind,
        "config": {"type": kind, "name": server.name},
    }
    more = {"serverInfo": server.info, "error": server.error, "note": server.note}
    body.update({name: value for name, value in more.items() if value})
    if server.retrying is not None:
        body["retryInSeconds"] = max(0, round(server.next_try - time.monotonic()))
    if server.status == "connected":
        body["tools"] = [
            {"name": tool.called, "annotations": {"readOnly": tool.traits.parallel}} for tool in server.tools.values()
        ]
    return body
