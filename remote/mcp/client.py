"""The client of one MCP server: handshake, list of tools, calls. It speaks JSON-RPC over any channel."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Coroutine
from typing import Any, Protocol

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.mcp import TOOL_USE_ID

from ..system.deadline import within

Json = dict[str, Any]

PROTOCOL = "2025-11-25"
HANDSHAKE_S = 60.0
"""Seconds for each message of the handshake, and for each page of the list of tools."""

CALL_S = 100_000.0
"""Seconds for a call. It is long because a tool may ask a person."""

_MAX_PAGES = 100
_MAX_TOOLS = 1000


class McpError(Exception):
    """A server cannot be reached, refuses, or answers with something that is not MCP."""


class Channel(Protocol):
    """Carries messages to one server."""

    def exchange(self, message: Json) -> Coroutine[Any, Any, Json]:
        """Return the server's reply to a message; to a notification it may be anything. Cancelling withdraws the
        message. Raise McpError."""


@dataclass(frozen=True)
class ServerTool:
    """A tool as its server describes it."""

    name: str
    description: str
    input_schema: Json
    only_reads: bool = False


class McpClient:
    """`connect` comes first. `info` and `instructions` are what the server says about itself."""

    def __init__(self, channel: Channel, *, handshake_s: float = HANDSHAKE_S, call_s: float = CALL_S) -> None:
        self.info: Json = {}
        self.instructions = ""
        self._channel = channel
        self._handshake_s = handshake_s
        self._call_s = call_s
        # Calls of an earlier worker or connection may still run on the server, under ids of their own.
        self._ids = itertools.count(secrets.randbits(48))
        self._has_tools = False

    async def connect(self) -> None:
        """Agree with the server on the protocol. Raise McpError."""
        given = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "ccb", "version": "1"}}
        found = await self._ask("initialize", given, self._handshake_s)
        info, capabilities = found.get("serverInfo"), found.get("capabilities")
        self.info = info if isinstance(info, dict) else {}
        self.instructions = str(found.get("instructions") or "")
        self._has_tools = isinstance(capabilities, dict) and "tools" in capabilities
        await self._within(self._channel.exchange(_notification("notifications/initialized")), self._handshake_s)

    async def tools(self) -> list[ServerTool]:
        """Return the tools of the server, from all pages. Tools without a name or an object as their schema are left
        out. Raise McpError."""
        if not self._has_tools:
            return []
        found: list[ServerTool] = []
        cursor: object = None
        for _ in range(_MAX_PAGES):
            page = await self._ask("tools/list", {} if cursor is None else {"cursor": cursor}, self._handshake_s)
            listed = page.get("tools")
            for each in listed if isinstance(listed, list) else ():
                tool = _tool(each)
                if tool is not None:
                    found.append(tool)
            last, cursor = cursor, page.get("nextCursor")
            if cursor is None or cursor == last or len(found) >= _MAX_TOOLS:
                break
        return found[:_MAX_TOOLS]

    async def call(self, name: str, arguments: Json, tool_use_id: str = "") -> Json:
        """Call a tool and return the result object. Raise McpError."""
        params: Json = {"name": name, "arguments": arguments}
        if tool_use_id:
            params["_meta"] = {TOOL_USE_ID: tool_use_id, "progressToken": tool_use_id}
        return await self._ask("tools/call", params, self._call_s)

    async def _ask(self, method: str, params: Json, seconds: float) -> Json:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        reply = await self._within(self._channel.exchange(message), seconds)
        error, result = reply.get("error"), reply.get("result")
        if isinstance(error, dict):
            raise McpError(str(error.get("message") or "the server gives no reason"))
        if not isinstance(result, dict):
            raise McpError(f"the reply to {method} has no result")
        return result

    async def _within(self, exchange: Coroutine[Any, Any, Json], seconds: float) -> Json:
        try:
            return await within(seconds, exchange)
        except asyncio.TimeoutError:
            raise McpError(f"no answer within {seconds:g} s") from None


def _notification(method: str) -> Json:
    return {"jsonrpc": "2.0", "method": method}


def _tool(described: object) -> ServerTool | None:
    if not isinstance(described, dict):
        return None
    name, schema, hints = described.get("name"), described.get("inputSchema"), described.get("annotations")
    if not (isinstance(name, str) and name and isinstance(schema, dict)):
        return None
    only_reads = isinstance(hints, dict) and hints.get("readOnlyHint") is True
    return ServerTool(name, str(described.get("description") or ""), {"type": "object", **schema}, only_reads)
