"""The plugins that a client's command line names (`--plugin-dir`): directories on the host that bring commands, skills,
agents, hooks and MCP servers. The person has named them, so they need no other trust."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import Callable

from ccb.tunnel.wire.settings_text import lines_in, load_settings

from .settings_files import read_settings, read_text
from .worker_settings import FLAG, Layer, Plugin

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
            value, lines = _read(os.path.join(path, file), key, path, report)
            if isinstance(value, dict) or (value and key == "hooks"):  # hooks that cannot be read are refused by name
                layers.append(Layer(FLAG, os.path.join(path, file), {key: value}, True, lines))
    return plugins, layers


def _read(file: str, key: str, root: str, report: Callable[[str], None]) -> tuple[object, dict[str, int]]:
    """Return a value of a file, in which `root` stands for the directory of the plugin, and the lines of what it holds.
    If the file cannot be read, that is the value."""
    try:
        text = (read_text(file) or "{}").replace(_ROOT, json.dumps(root)[1:-1])
        values = load_settings(text)
    except (ValueError, RecursionError) as error:
        report(f"{file}: {error}")
        return str(error), {}
    return values.get(key) if isinstance(values, dict) else values, lines_in(text)[0]
