"""The MCP servers of a session: they are connected in the background, and their tools join the registry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import RunsOn

from ..tools.registry import ToolRegistry
from .client import Channel, McpClient, McpError
from .tool import McpTool

Json = dict[str, Any]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerPlace:
    """Where a group of servers is from. `group` names it, `scope` and `kind` are what clients are told."""

    group: str
    scope: str
    kind: str
    runs_on: RunsOn


IN_CLIENT = ServerPlace("client", "dynamic", "sdk", RunsOn.CLIENT)
ON_LAPTOP = ServerPlace("laptop", "user", "laptop", RunsOn.LAPTOP)


class _Server:
    def __init__(self, name: str, place: ServerPlace, channel: Channel) -> None:
        self.name = name
        self.place = place
        self.channel = channel
        self.status = "pending"  # pending, connected, failed or disabled
        self.error = ""
        self.info: Json = {}
        self.tools: dict[str, McpTool] = {}
        self.task: asyncio.Task[None] | None = None


class McpServers:
    """`changed` is called when the status of a server has changed. A server that cannot be connected keeps nobody from
    anything: its tools are missing, and `status` says why."""

    def __init__(self, registry: ToolRegistry, changed: Callable[[], None] = lambda: None) -> None:
        self._registry = registry
        self._changed = changed
        self._servers: dict[str, _Server] = {}

    def use(self, place: ServerPlace, channels: Mapping[str, Channel]) -> None:
        """Make `channels` the servers of a group: connect the new ones, and drop those that are not named any more. A
        name that another group has stays with that group."""
        for server in [each for each in self._servers.values() if each.place.group == place.group]:
            if server.name not in channels:
                self._drop(self._servers.pop(server.name))
        for name, channel in channels.items():
            known = self._servers.get(name)
            if known is None:
                self._servers[name] = known = _Server(name, place, channel)
                self._connect(known)
            elif known.place.group == place.group:
                known.channel = channel

    async def ready(self, patience_s: float | None = None) -> None:
        """Return when no server is pending, or after `patience_s`. Each handshake has a deadline."""
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
            self._changed()

    def said(self, name: str, message: Json) -> None:
        """A server has sent a message of its own accord: read its tools again if it says that they have changed."""
        server = self._servers.get(name)
        if server is not None and message.get("method") == "notifications/tools/list_changed":
            self._connect(server)

    def summary(self) -> list[Json]:
        """Return name and status of each server, for `init`."""
        return [{"name": each.name, "status": each.status} for each in self._servers.values()]

    def status(self) -> list[Json]:
        """Return what clients are told about each server."""
        return [_described(each) for each in self._servers.values()]

    async def close(self) -> None:
        """Stop connecting."""
        tasks = [each.task for each in self._servers.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _connect(self, server: _Server) -> None:
        if server.task is not None:
            server.task.cancel()
        server.status, server.error = "pending", ""
        server.task = asyncio.ensure_future(self._connected(server))

    async def _connected(self, server: _Server) -> None:
        client = McpClient(server.channel)
        try:
            await client.connect()
            listed = await client.tools()
            server.info = client.info
            server.status = "connected"
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a server says, the session goes on without it
            log.warning("the MCP server %s is not connected: %s", server.name, error)
            server.status, server.error = "failed", str(error) if isinstance(error, McpError) else repr(error)
            listed = []
        tools = [McpTool(server.name, each, client, server.place.runs_on) for each in listed]
        self._offer(server, {tool.name: tool for tool in tools})
        server.task = None
        self._changed()

    def _offer(self, server: _Server, tools: dict[str, McpTool]) -> None:
        taken = {name for each in self._servers.values() if each is not server for name in each.tools}
        self._registry.remove(name for name in server.tools if name not in tools)
        server.tools = {name: tool for name, tool in tools.items() if name not in taken}
        self._registry.add(server.tools.values())

    def _drop(self, server: _Server) -> None:
        if server.task is not None:
            server.task.cancel()
            server.task = None
        self._registry.remove(server.tools)
        server.tools = {}


def _described(server: _Server) -> Json:
    body: Json = {
        "name": server.name,
        "status": server.status,
        "scope": server.place.scope,
        "transport": server.place.kind,
        "config": {"type": server.place.kind, "name": server.name},
    }
    if server.info:
        body["serverInfo"] = server.info
    if server.error:
        body["error"] = server.error
    if server.status == "connected":
        body["tools"] = [
            {"name": tool.called, "annotations": {"readOnly": tool.traits.parallel}} for tool in server.tools.values()
        ]
    return body
