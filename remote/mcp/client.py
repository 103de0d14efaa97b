"""The client of one MCP server: handshake, tools, resources, prompts. It speaks JSON-RPC over any channel."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Coroutine
from typing import Any, Callable, Protocol

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.mcp import TOOL_USE_ID

from ..system.deadline import within

Json = dict[str, Any]

PROTOCOL = "2025-11-25"
HANDSHAKE_S = 60.0
"""Seconds for each message of the handshake, and for each page of a list."""

CALL_S = 100_000.0
"""Seconds for a call. It is long because a tool may ask a person."""

UNKNOWN = "; whether this had any effect is not known: check that before you try again"
"""What is said of a message that has been sent and gets no answer."""

STARTS_AGAIN = "; the next call starts it again"
"""What is said of a server that has ended."""

_MAX_PAGES = 100
_MAX_LISTED = 1000


class McpError(Exception):
    """A server cannot be reached, refuses, or answers with something that is not MCP."""


class Channel(Protocol):
    """Carries messages to one server."""

    def exchange(self, message: Json) -> Coroutine[Any, Any, Json]:
        """Return the server's reply to a message; to a notification it may be anything. Cancelling withdraws the
        message. Raise McpError."""

    async def close(self) -> None:
        """End a server that the worker has started. The next handshake starts it again."""


@dataclass(frozen=True)
class ServerTool:
    """A tool as its server describes it."""

    name: str
    description: str
    input_schema: object
    only_reads: bool = False


class McpClient:
    """`connect` comes first. `info` and `instructions` are what the server says about itself, `offers` are the names of
    its capabilities."""

    def __init__(self, channel: Channel, *, handshake_s: float = HANDSHAKE_S, call_s: float = CALL_S) -> None:
        self.info: Json = {}
        self.instructions = ""
        self._channel = channel
        self._handshake_s = handshake_s
        self._call_s = call_s
        # Calls of an earlier worker or connection may still run on the server, under ids of their own.
        self._ids = itertools.count(secrets.randbits(48))
        self.offers: frozenset[str] = frozenset()
        self._progress: dict[str, Callable[[Json], None]] = {}

    async def connect(self) -> None:
        """Agree with the server on the protocol. Raise McpError."""
        given = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "ccb", "version": "1"}}
        found = await self._ask("initialize", given, self._handshake_s)
        info, capabilities = found.get("serverInfo"), found.get("capabilities")
        self.info = info if isinstance(info, dict) else {}
        self.instructions = str(found.get("instructions") or "")
        self.offers = frozenset(capabilities if isinstance(capabilities, dict) else ())
        await self._within(self._channel.exchange(_notification("notifications/initialized")), self._handshake_s)

    async def tools(self) -> tuple[list[ServerTool], list[str]]:
        """Return the tools of the server, from all pages, and those that are left out, because nobody can call them: by
        their names. Raise McpError."""
        found, broken = [], []
        for described in await self.listed("tools"):
            tool = _tool(described)
            if tool is not None:
                found.append(tool)
            else:
                broken.append(str(described.get("name"))[:100])
        return found, broken

    async def listed(self, what: str) -> list[Json]:
        """Return the `tools`, `resources` or `prompts` that the server describes, from all pages. Raise McpError."""
        found: list[Json] = []
        cursor: object = None
        for _ in range(_MAX_PAGES if what in self.offers else 0):
            page = await self._ask(f"{what}/list", {} if cursor is None else {"cursor": cursor}, self._handshake_s)
            listed = page.get(what)
            found += [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
            last, cursor = cursor, page.get("nextCursor")
            if cursor is None or cursor == last or len(found) >= _MAX_LISTED:
                break
        return found[:_MAX_LISTED]

    async def call(
        self, name: str, arguments: Json, tool_use_id: str = "", progress: Callable[[Json], None] | None = None
    ) -> Json:
        """Call a tool and return the result object. `progress` gets what the server says of the call's progress. Raise
        McpError."""
        params: Json = {"name": name, "arguments": arguments}
        if tool_use_id:
            params["_meta"] = {TOOL_USE_ID: tool_use_id, "progressToken": tool_use_id}
        if progress is not None:
            self._progress[tool_use_id] = progress
        try:
            return await self._ask("tools/call", params, self._call_s)
        finally:
            self._progress.pop(tool_use_id, None)

    async def read(self, uri: str) -> Json:
        """Return the contents of a resource. Raise McpError."""
        return await self._ask("resources/read", {"uri": uri}, self._handshake_s)

    async def prompt(self, name: str, arguments: dict[str, str]) -> Json:
        """Return a prompt with these arguments in place. Raise McpError."""
        return await self._ask("prompts/get", {"name": name, "arguments": arguments}, self._handshake_s)

    def heard_progress(self, params: Json) -> None:
        """Pass on what the server says about the progress of a call."""
        progress = self._progress.get(str(params.get("progressToken")))
        if progress is not None:
            progress(params)

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


def _tool(described: Json) -> ServerTool | None:
    name, schema, hints = described.get("name"), described.get("inputSchema"), described.get("annotations")
    if not (isinstance(name, str) and name and isinstance(schema, (dict, bool))):
        return None
    only_reads = isinstance(hints, dict) and hints.get("readOnlyHint") is True
    return ServerTool(name, str(described.get("description") or ""), schema, only_reads)
