"""An MCP server inside this program that has tools and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import ccb
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_dict, as_text

_NO_METHOD = -32601


async def server_reply(
    message: Json, name: str, tools: Sequence[Json], call: Callable[[str, Json], Awaitable[Json]]
) -> Json:
    """Answer a JSON-RPC message to the server. `call` gets name and input of a tool, and returns a `tool_result`."""
    answer: Json = {"jsonrpc": "2.0", "id": message.get("id")}
    method, params = as_text(message.get("method")), as_dict(message.get("params"))
    result: Json = {}
    if method == "initialize":
        about = {"name": name, "version": ccb.__version__}
        version = as_text(params.get("protocolVersion"))
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    elif method == "tools/list":
        result = {"tools": [*tools]}
    elif method == "tools/call":
        wanted = as_text(params.get("name"))
        if all(each["name"] != wanted for each in tools):
            result = tool_result("There is no such tool.", failed=True)
        else:
            result = await call(wanted, as_dict(params.get("arguments")))
    elif method != "ping" and "id" in message:
        return {**answer, "error": {"code": _NO_METHOD, "message": f"{method[:60]} is not known here"}}
    return {**answer, "result": result}


def tool_result(text: str, *, failed: bool = False) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": failed}
