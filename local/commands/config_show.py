"""`ccb config show`: the settings of this machine, and where each comes from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ccb.tunnel.wire.settings_text import line_of

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import needs_host
from ..config.project_records import Projects
from ..config.settings import Settings, SettingsChoice, settings_path
from ..config.settings_loading import load_settings
from ..terminal.console import print_line, say

_JOINED = ("permissions", "env", "mcpServers", "hooks")  # the keys whose values in different sources add up


def run_config(arguments: Arguments, environ: Mapping[str, str]) -> int:
    origin = arguments.host_command.origin
    settings = load_settings(environ, SettingsChoice(flag=arguments.sdk.settings))
    kept = Projects(environ)
    suffix = f"  (kept: {kept.path})" if origin else ""
    projects = [line + suffix for record in kept.all() for line in record.lines]
    connection = arguments.connection
    if connection.target is not None or connection.local or not needs_host(connection):
        projects += _of_host(arguments, environ, origin=origin)
    say(*(f"ccb: {warning}" for warning in settings.warnings))
    values = [(f"{name} = {value}", f"  ({where})") for name, value, where in setting_lines(settings)]
    lines = [line + (where if origin else "") for line, where in values] + projects
    nothing = f"Nothing is set. Settings are in {settings_path(environ)}; `ccb help settings` lists them."
    print_line(*lines or [nothing])
    return ExitCode.OK


def setting_lines(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and origin of each value that counts; of values that add up, each by itself."""
    for name in sorted({name for layer in settings.layers for name in layer.values}):
        setting = [layer for layer in settings.layers if name in layer.values]
        for layer in setting if name in _JOINED else setting[-1:]:
            for keys, value in _parts([name], layer.values[name]):
                rules = layer.values["permissions"].get(keys[-1]) if name == "permissions" else None
                place = [*keys, rules.index(value)] if isinstance(rules, list) else keys
                origin = f"{layer.source}: {layer.path}, line {line_of(layer.text, place)}"
                yield ".".join(keys), json.dumps(value, ensure_ascii=False), origin


def _parts(keys: list[str], value: Any) -> Iterator[tuple[list[str], Any]]:
    if keys[0] in _JOINED and isinstance(value, dict) and len(keys) == 1:
        for key, each in value.items():
            yield from _parts([*keys, key], each)
    elif keys[0] == "permissions" and isinstance(value, list):
        yield from ((keys, each) for each in value)
    else:
        yield keys, value


def _of_host(arguments: Arguments, environ: Mapping[str, str], *, origin: bool) -> list[str]:
    from .trust import read_host_project

    found = asyncio.run(read_host_project(arguments, environ))
    trusted = Projects(environ).find(found.host, found.directory.raw).trusted == found.fingerprint
    say(*(f"ccb: on the host: {problem}" for problem in found.problems))
    counts = "" if trusted else ", not trusted, so it does not count"
    lines = [each.line + (f"  ({each.origin}{counts})" if origin else "") for each in found.switches]
    return lines + [each.line + (f"  ({each.origin})" if origin else "") for each in found.policy]
