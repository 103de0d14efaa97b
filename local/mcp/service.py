"""Answer the worker's messages to the MCP servers of the person's settings."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.kinds.mcp import CLIENT_MCP_MESSAGE, LAPTOP_MCP_MESSAGE, TOOL_USE_ID, McpMessage, tool_name
from ccb.tunnel.wire.requests import Request, RequestFailed, RequestRefused

from .config import ServerConfig
from .permissions import LaptopPermissions

if TYPE_CHECKING:
    from ..session.client import SessionClient
    from .server import LaptopServer

Json = dict[str, Any]

log = logging.getLogger(__name__)

MISSING = "MCP servers are configured, but the package for them is missing: pip install 'ccb[mcp]'"


def package_missing() -> bool:
    """Return whether the extra `ccb[mcp]` is not installed."""
    from importlib.util import find_spec

    return find_spec("mcp") is None


def _nowhere() -> TextIO:
    """What servers say beside the protocol is shown by `ccb mcp test`."""
    return Path(os.devnull).open("w", encoding="utf-8")


@asynccontextmanager
async def serving(
    session: SessionClient, configs: Mapping[str, ServerConfig], permissions: LaptopPermissions
) -> AsyncIterator[None]:
    """Answer messages of the worker to the servers of these names, until the session is left. What `permissions`
    refuses reaches no server."""
    if not configs:
        yield
        return
    with _nowhere() as stderr:
        servers: dict[str, LaptopServer] = {}

        async def said(name: str, message: Json) -> None:
            try:
                await session.request(Request(CLIENT_MCP_MESSAGE, McpMessage(name, message)))
            except (RequestFailed, CcbError) as error:
                log.info("the worker does not take a message of the MCP server %s: %s", name, error)

        async def answer(message: McpMessage) -> Json:
            from .server import LaptopServer

            config = configs.get(message.server_name)
            if config is None:
                raise RequestRefused("This laptop has no MCP server of that name.")
            server = servers.get(message.server_name)
            if server is None:
                server = servers[message.server_name] = LaptopServer(message.server_name, config, said, stderr)
            allowed = await permitted(permissions, message.server_name, message.message)
            return {"mcp_response": await server.reply(allowed)}

        session.register(LAPTOP_MCP_MESSAGE, answer)
        try:
            yield
        finally:
            for server in servers.values():
                await server.close()


async def permitted(permissions: LaptopPermissions, server: str, message: Json) -> Json:
    """Return the message that may go to a server: a call has the arguments that were allowed. Raise RequestRefused."""
    method, given = message.get("method"), message.get("params")
    params = given if isinstance(given, dict) else {}
    arguments = params.get("arguments")
    arguments = arguments if isinstance(arguments, dict) else {}
    if method == "tools/call":
        meta = params.get("_meta")
        tool_use_id = str(meta.get(TOOL_USE_ID) or "") if isinstance(meta, dict) else ""
        tool = tool_name(server, str(params.get("name")))
        allowed = await permissions.check(tool, arguments, tool_use_id)
        return {**message, "params": {**params, "arguments": allowed}}
    if method == "resources/read":
        await permissions.check_reading(server, str(params.get("uri")))
    elif method == "prompts/get":
        await permissions.check_prompt(server, tool_name(server, str(params.get("name"))), arguments)
    return message
