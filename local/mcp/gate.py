"""The gate in front of MCP servers that the host may use: what this laptop has not allowed reaches none of them.

The servers are those of the person's settings (`service`), or those inside the program that drives the session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ccb.tunnel.wire.kinds.mcp import MCP_MESSAGE, TOOL_USE_ID, McpMessage, tool_name
from ccb.tunnel.wire.requests import Request, RequestFailed, RequestRefused

from .permissions import LaptopPermissions

if TYPE_CHECKING:
    from ..session.remote_session import RemoteSession

Json = dict[str, Any]


def guard_client_servers(session: RemoteSession, permissions: LaptopPermissions) -> None:
    """Let the worker use the servers inside the program that drives this session, through the gate. The program gets
    each message as a question of this laptop."""

    async def pass_on(message: McpMessage) -> Json:
        async def ask_program(allowed: Json) -> Json:
            try:
                return await session.ask_reader(Request(MCP_MESSAGE, McpMessage(message.server_name, allowed)))
            except RequestFailed as failed:
                raise RequestRefused(str(failed)) from failed

        return await answered(permissions, message, ask_program)

    session.register(MCP_MESSAGE, pass_on, is_call)


async def answered(permissions: LaptopPermissions, message: McpMessage, ask: Callable[[Json], Awaitable[Json]]) -> Json:
    """Return the answer to a request of the worker: what `ask` returns for the message that may go to the server.
    Raise RequestRefused."""
    allowed = await permitted(permissions, message.server_name, message.message)
    reply = await ask(allowed)
    params = allowed.get("params")
    if allowed.get("method") == "tools/call" and isinstance(params, dict):
        tool = tool_name(message.server_name, str(params.get("name")))
        permissions.replied(tool, params["arguments"], reply.get("result") or {})
    return {"mcp_response": reply}


async def permitted(permissions: LaptopPermissions, server: str, message: Json) -> Json:
    """Return the message that may go to a server: a call has the arguments that were allowed. Raise RequestRefused."""
    method, given = message.get("method"), message.get("params")
    params = given if isinstance(given, dict) else {}
    arguments = params.get("arguments")
    arguments = arguments if isinstance(arguments, dict) else {}
    if method == "tools/call":
        tool = tool_name(server, str(params.get("name")))
        allowed = await permissions.check(tool, arguments, tool_use_id_of(params))
        return {**message, "params": {**params, "arguments": allowed}}
    if method == "resources/read":
        await permissions.check_reading(server, str(params.get("uri")))
    elif method == "prompts/get":
        await permissions.check_prompt(server, tool_name(server, str(params.get("name"))), arguments)
    return message


def is_call(message: McpMessage) -> bool:
    """Return whether a message calls a tool, which may have an effect."""
    return message.message.get("method") == "tools/call"


def tool_use_id_of(params: Json) -> str:
    """Return the id of the tool call that a message belongs to, "" if it names none."""
    meta = params.get("_meta")
    return str(meta.get(TOOL_USE_ID) or "") if isinstance(meta, dict) else ""
