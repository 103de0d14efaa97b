"""The MCP servers that `--mcp-config` names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ccb.tunnel.errors import UsageError

from ..option_values import shortened

Json = dict[str, object]


def mcp_servers(configs: Sequence[str]) -> dict[str, Json]:
    """Return the servers by name. Each config is a JSON text or the path of a JSON file on this machine; a later one
    replaces servers of the same name. Raises UsageError."""
    servers: dict[str, Json] = {}
    for config in configs:
        servers.update(_servers(config))
    return servers


def _servers(config: str) -> dict[str, Json]:
    try:
        text = config if config.lstrip().startswith("{") else Path(config).expanduser().read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--mcp-config {shortened(config)}: it cannot be read", evidence=str(error)[:200]) from None
    servers = found.get("mcpServers") if isinstance(found, dict) else None
    if not isinstance(servers, dict) or not all(isinstance(server, dict) for server in servers.values()):
        raise UsageError(
            f"--mcp-config {shortened(config)}: it has no object mcpServers with one object for each server",
            do='Write {"mcpServers": {"name": {"type": "sdk", "name": "name"}}}.',
        )
    return servers
