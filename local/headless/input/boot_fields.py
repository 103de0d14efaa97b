"""The fields of `initialize` that take the place of options of the command line (`--await-initialize`): a client sends
them on stdin, so that nobody else on its machine reads them in a list of processes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from ...command_line.model import Arguments

if TYPE_CHECKING:
    from ...session.client import Json


def with_boot_fields(arguments: Arguments, request: Json) -> tuple[Arguments, Json]:
    """Return the arguments with what the request says, and what the client is told that ccb has done with it."""
    sdk, agent = arguments.sdk, arguments.agent
    confirmed: Json = {}
    servers, settings, denied = (request.get(name) for name in ("mcpServers", "settings", "disallowedTools"))
    if isinstance(servers, dict):
        sdk = replace(sdk, mcp_config=(*sdk.mcp_config, json.dumps({"mcpServers": servers})))
        confirmed["mcp_servers_applied"] = True
    if isinstance(settings, dict | str):
        sdk = replace(sdk, settings=settings if isinstance(settings, str) else json.dumps(settings))
        confirmed["settings_applied"] = True
    if isinstance(denied, list):
        agent = replace(agent, disallowed_tools=(*agent.disallowed_tools, *map(str, denied)))
        confirmed["disallowed_tools_applied"] = True
    plugins = request.get("plugins")
    if isinstance(plugins, list):
        paths = [str(each["path"]) for each in plugins if isinstance(each, dict) and each.get("path")]
        sdk = replace(sdk, plugin_dirs=(*sdk.plugin_dirs, *paths))
        confirmed["plugins_applied"] = len(paths) == len(plugins)
    return replace(arguments, sdk=sdk, agent=agent), confirmed
