"""Channels to MCP servers that answer requests of the worker."""

from __future__ import annotations

from typing import Any

from ccb.tunnel.wire.kinds.mcp import LAPTOP_MCP_MESSAGE, McpMessage
from ccb.tunnel.wire.requests import Request, RequestFailed, RequestKind

from ..ports import Broker
from .client import McpError

Json = dict[str, Any]


class RequestChannel:
    """Reaches a server by requests of one kind: MCP_MESSAGE inside the client, LAPTOP_MCP_MESSAGE on the laptop.

    A message is sent once. It waits for its answer over lost connections, like every request."""

    def __init__(self, broker: Broker, kind: RequestKind[McpMessage, Json], server: str) -> None:
        self._broker = broker
        self._kind = kind
        self._server = server
        self.may_come_back = kind is LAPTOP_MCP_MESSAGE
        """The client of an SDK has a server or has none; one of the laptop may be down for a while."""

    async def exchange(self, message: Json) -> Json:
        """See Channel."""
        about = f"the MCP server {self._server}"
        try:
            return await self._broker.request(Request(self._kind, McpMessage(self._server, message), about))
        except RequestFailed as error:
            raise McpError(str(error)) from None

    async def close(self) -> None:
        """The worker has not started the server."""


class RefusedChannel:
    """Stands for a server that cannot be started, and says why."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def exchange(self, message: Json) -> Json:
        """See Channel."""
        raise McpError(self._why)

    async def close(self) -> None:
        """There is nothing to end."""
