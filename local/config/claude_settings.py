"""What counts of the person's settings of Claude Code on this machine. No mistake in them keeps ccb from starting.

The person wrote these files for another program, which runs everything on this machine. What would do more with ccb
than they say is left out: hooks and variables, which go to the host, and a mode without questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from ccb.tunnel.errors import ConfigError

from .settings import CLAUDE, SettingsLayer
from .settings_file import MAX_BYTES, parse_settings, read_settings_text, refuse_wrong_models

_TAKEN = ("permissions", "model", "outputStyle", "language")
_HOOKS = ("hooks", "disableAllHooks")
_MAX_STATE = 8 * 1024 * 1024  # bytes of ~/.claude.json, which holds a history of projects, too


def claude_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("CLAUDE_CONFIG_DIR") or Path(environ.get("HOME") or Path.home()) / ".claude")


def read_claude_settings(environ: Mapping[str, str], *, hooks: bool) -> Iterator[SettingsLayer]:
    """Yield the layers of `~/.claude/settings.json` and of the MCP servers in `~/.claude.json`, where there are such
    files. Their values are not validated yet."""
    folder = claude_folder(environ)
    state = folder / ".claude.json" if environ.get("CLAUDE_CONFIG_DIR") else folder.with_name(".claude.json")
    for path, read, most in (
        (folder / "settings.json", partial(_settings, hooks=hooks), MAX_BYTES),
        (state, _servers, _MAX_STATE),
    ):
        try:
            text = read_settings_text(path, environ, most)
            if text is not None:
                yield read(str(path), text)
        except ConfigError as error:
            yield SettingsLayer(CLAUDE, str(path), "", {}, notes=(f"{error.what}: nothing of it counts",))


def _settings(path: str, text: str, *, hooks: bool) -> SettingsLayer:
    found = parse_settings(path, text)
    names = (*_TAKEN, *_HOOKS) if hooks else _TAKEN
    values = {name: value for name, value in found.items() if name in names}
    unknown = [name for name in found if name not in (*names, "$schema")]
    notes = []
    if found.get("hooks") and not hooks and not found.get("disableAllHooks"):
        do = "`ccb config set importClaudeSettings hooks` lets them count"
        notes.append(f"{path}: its hooks do not count, because ccb runs hooks on the host; {do}")
    rules = values.get("permissions")
    if isinstance(rules, dict) and rules.get("defaultMode") == "bypassPermissions":
        values["permissions"] = {name: value for name, value in rules.items() if name != "defaultMode"}
        unknown.append("permissions.defaultMode")
    try:
        refuse_wrong_models(path, text, values)
    except (ConfigError, TypeError):
        unknown.append("model")
        del values["model"]
    return SettingsLayer(CLAUDE, path, text, values, tuple(unknown), tuple(notes))


def _servers(path: str, text: str) -> SettingsLayer:
    """The text is not kept, so that nothing looks for lines in megabytes."""
    servers = parse_settings(path, text).get("mcpServers")
    notes = []
    if isinstance(servers, dict):
        wrong = [name for name, server in servers.items() if not isinstance(server, dict)]
        notes = [f"{path}: mcpServers.{name[:60]} is no object; it does not count" for name in wrong]
        servers = {name: server for name, server in servers.items() if name not in wrong}
    return SettingsLayer(CLAUDE, path, "", {"mcpServers": servers} if servers else {}, notes=tuple(notes))
