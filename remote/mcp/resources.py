"""The tools through which the model lists and reads the resources of MCP servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ccb.tunnel.wire.tool_traits import LIST_MCP_RESOURCES, READ_MCP_RESOURCE

from ..tools.contract import Tool, ToolContext, ToolDeclaration, ToolResult
from .client import McpClient, McpError
from .tool import tool_result

if TYPE_CHECKING:
    from .servers import McpServers

Json = dict[str, Any]

_SERVER: Json = {"type": "string", "description": "The name of the MCP server"}
_SHOWN = ("uri", "name", "title", "mimeType", "description")


class ListMcpResources(Tool):
    """Lists what the servers have to read."""

    declaration = ToolDeclaration(
        LIST_MCP_RESOURCES,
        "Lists the resources of MCP servers, of all or of one. Each comes with its server and its URI.",
        {"type": "object", "properties": {"server": _SERVER}},
    )

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        wanted = tool_input.get("server")
        lines = []
        for name, client in _with_resources(self._servers).items():
            if wanted not in (None, name):
                continue
            try:
                for each in await client.listed("resources"):
                    shown = {key: each[key] for key in _SHOWN if each.get(key)}
                    lines.append(json.dumps({"server": name, **shown}, ensure_ascii=False))
            except McpError as error:
                lines.append(f"{name}: {error}")
        return ToolResult("\n".join(lines) or "There are no resources.")


class ReadMcpResource(Tool):
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

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        clients = _with_resources(self._servers)
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


def _with_resources(servers: McpServers) -> dict[str, McpClient]:
    return {name: client for name, client in servers.clients.items() if "resources" in client.offers}


def _part(content: Json) -> Json:
    if isinstance(content.get("blob"), str):
        return {"type": "image", "data": content["blob"], "mimeType": content.get("mimeType", "unknown")}
    return {"type": "text", "text": str(content.get("text", ""))}
