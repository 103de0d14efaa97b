"""The plugins that a client's command line names (`--plugin-dir`): directories on the host that bring commands, skills,
agents, hooks and MCP servers. The person has named them, so they need no other trust."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import Any, Callable

from .settings_files import read_settings, read_text
from .worker_settings import FLAG, Layer, Plugin

Json = dict[str, Any]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_ROOT = "${CLAUDE_PLUGIN_ROOT}"


def read_plugins(
    directories: Iterable[str], cwd: str, report: Callable[[str], None]
) -> tuple[list[Plugin], list[Layer]]:
    """Return the plugins in these directories, and what they add to the settings. What cannot be used is reported in
    words."""
    plugins: list[Plugin] = []
    layers: list[Layer] = []
    for given in directories:
        path = os.path.normpath(os.path.join(cwd, os.path.expanduser(given)))
        if not os.path.isdir(path):
            report(f"There is no plugin {path} on this host.")
            continue
        manifest = read_settings(os.path.join(path, ".claude-plugin", "plugin.json"), report) or {}
        name = manifest.get("name", os.path.basename(path))
        if not isinstance(name, str) or not _NAME.fullmatch(name) or any(name == each.name for each in plugins):
            report(f"{path}: {str(name)[:100]!r} cannot be the name of another plugin")
            continue
        plugins.append(Plugin(name, path))
        for file, key in ((os.path.join("hooks", "hooks.json"), "hooks"), (".mcp.json", "mcpServers")):
            values = _read(os.path.join(path, file), path, report)
            if isinstance(values.get(key), dict):
                layers.append(Layer(FLAG, os.path.join(path, file), {key: values[key]}, on_host=True))
    return plugins, layers


def _read(file: str, root: str, report: Callable[[str], None]) -> Json:
    """Return the object in a file, in which `root` stands for the directory of the plugin."""
    try:
        text = read_text(file) or "{}"
        values = json.loads(text.replace(_ROOT, json.dumps(root)[1:-1]))
    except (ValueError, RecursionError) as error:
        report(f"{file}: {error}")
        return {}
    return values if isinstance(values, dict) else {}
