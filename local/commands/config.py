"""`ccb config`: the settings of this machine, where each comes from, and changes of the user's file."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.wire.settings_text import line_of

from ..command_line.arguments import Arguments, shortened
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import needs_host
from ..config.project_records import Projects
from ..config.settings import (
    CLAUDE,
    EVERYTHING,
    MANAGED,
    POLICY,
    USER,
    Settings,
    SettingsChoice,
    near_setting,
    settings_path,
)
from ..config.settings_file import changed, read_settings_text, write_text
from ..config.settings_loading import JOINED, SCHEMA, load_settings
from ..terminal.console import print_line, say

_NAME = re.compile(r'"([^"]*)"|([^."]+)')
_NO_KEYS = ("given", "layers")
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_JOINED = ("permissions", "env", "mcpServers", "hooks", POLICY)  # the keys whose values in different sources add up


def run_config(arguments: Arguments, environ: Mapping[str, str]) -> int:
    action, *words = arguments.rest
    if action == "show":
        return _show(arguments, environ)
    if action == "schema":
        print_line(*schema_text(policy=arguments.host_command.policy).splitlines())
        return ExitCode.OK
    if action == "edit":
        return _edit(environ)
    if action == "get":
        settings = load_settings(environ, SettingsChoice(flag=arguments.sdk.settings))
        value, origin = value_in_force(settings, words[0])
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        print_line(shown + (f"  ({origin})" if arguments.host_command.origin else ""))
        return ExitCode.OK
    print_line(change_setting(words[0], words[1] if action == "set" else "null", environ))
    return ExitCode.OK


def _show(arguments: Arguments, environ: Mapping[str, str]) -> int:
    origin, connection = arguments.host_command.origin, arguments.connection
    settings = load_settings(environ, SettingsChoice(flag=arguments.sdk.settings))
    projects = _of_projects(environ, origin=origin)
    if connection.target is not None or connection.local or not needs_host(connection):
        projects += _of_host(arguments, environ, origin=origin)
    say(*(f"ccb: {warning}" for warning in settings.warnings))
    imported = [layer for layer in settings.layers if layer.source == CLAUDE and layer.unknown]
    say(*(f"ccb: {layer.path}: ccb takes no {', '.join(layer.unknown)}" for layer in imported))
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
                origin = f"{layer.source}: {layer.path}" + (
                    f", line {line_of(layer.text, place)}" if layer.text else ""
                )
                yield ".".join(keys), json.dumps(_without_secrets(keys, value), ensure_ascii=False), origin


def _parts(keys: list[str], value: Any) -> Iterator[tuple[list[str], Any]]:
    if keys[0] in _JOINED and isinstance(value, dict) and len(keys) == 1:
        for key, each in value.items():
            yield from _parts([*keys, key], each)
    elif keys[0] == "permissions" and isinstance(value, list):
        yield from ((keys, each) for each in value)
    else:
        yield keys, value


def _without_secrets(keys: Sequence[str], value: Any) -> Any:
    """Return a value without the variables and headers of MCP servers: those of Claude Code may hold keys."""
    if keys[0] != "mcpServers" or not isinstance(value, dict):
        return value
    if len(keys) == 1:
        return {name: _without_secrets([*keys, name], each) for name, each in value.items()}
    hidden = [name for name in ("env", "headers") if isinstance(value.get(name), dict)]
    return {**value, **{name: dict.fromkeys(value[name], "…") for name in hidden}}


def _of_projects(environ: Mapping[str, str], *, origin: bool) -> list[str]:
    kept = Projects(environ)
    suffix = f"  (kept: {kept.path})" if origin else ""
    return [line + suffix for record in kept.all() for line in record.lines]


def _of_host(arguments: Arguments, environ: Mapping[str, str], *, origin: bool) -> list[str]:
    from .trust import read_host_project

    found = asyncio.run(read_host_project(arguments, environ))
    trusted = Projects(environ).find(found.host, found.directory.raw).trusted == found.fingerprint
    say(*(f"ccb: on the host: {problem}" for problem in found.problems))
    counts = "" if trusted else ", not trusted, so it does not count"
    lines = [each.line + (f"  ({each.origin}{counts})" if origin else "") for each in found.switches]
    return lines + [each.line + (f"  ({each.origin})" if origin else "") for each in found.policy]


def value_in_force(settings: Settings, key: str) -> tuple[object, str]:
    """Return the value of a setting as JSON has it, and where it comes from. Raise UsageError for no setting."""
    value: Any = settings
    for name in _names(key):
        if is_dataclass(value):
            if name in _NO_KEYS or not hasattr(value, name):
                raise _unknown(key)
            value = getattr(value, name)
        else:
            value = value.get(name) if isinstance(value, dict) else None
    whole, origins = ".".join(_names(key)), {}
    for name, _, where in setting_lines(settings):
        if f"{name}.".startswith(f"{whole}.") or f"{whole}.".startswith(f"{name}."):
            origins[where] = True
    return _without_secrets(_names(key), _plain(value)), "; ".join(origins) or "default"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
        return {name: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def change_setting(key: str, text: str, environ: Mapping[str, str], choice: SettingsChoice = EVERYTHING) -> str:
    """Write a value into the user's file, or remove it if `text` is `null`; return what to tell. Nothing is written if
    the file would be wrong then. Raise CcbError."""
    path, names = settings_path(environ), _names(key)
    before = read_settings_text(path, environ) or ""
    try:
        values = [json.loads(text), text]
    except ValueError:
        values = [text]
    refused: ConfigError | None = None
    for value in values:
        after = changed(str(path), before, names, value)
        try:
            settings = load_settings(environ, replace(choice, draft=after))
        except ConfigError as error:
            refused = refused or error
            continue
        _check_change(settings, names, key)
        if after != before:
            write_text(path, after)
        if value is None:
            return f"{key} is removed from {path}." if after != before else f"{key} is not set in {path}."
        return f"{key} = {json.dumps(value, ensure_ascii=False)}  ({path}, line {line_of(after, names)})"
    assert refused is not None
    do = "Give another value, or correct the file: `ccb config edit`."
    raise ConfigError(f"nothing is written: {refused.what}", evidence=refused.evidence, do=do)


def _check_change(settings: Settings, names: Sequence[str], key: str) -> None:
    """Raise UsageError for a key that there is not, and ConfigError for one that a policy holds."""
    whole = ".".join(names)
    for layer in settings.layers:
        if layer.source == USER and any(f"{whole}.".startswith(f"{each}.") for each in layer.unknown):
            raise _unknown(key)
        if layer.source != MANAGED or names[0] not in layer.values:
            continue
        held: Any = layer.values
        for name in names:
            held = held.get(name) if isinstance(held, dict) else None
        if names[0] not in (*JOINED, "hooks") or not isinstance(held, dict | list | None):
            raise ConfigError(
                f"{key} is held by the policy {layer.path}, line {line_of(layer.text, names)}: a value of yours has no "
                "effect",
                do="Ask the administrator of this machine.",
            )


def _names(key: str) -> list[str]:
    names = [quoted or plain for quoted, plain in _NAME.findall(key)]
    if not names:
        raise UsageError(f"{key!r} names no setting", do="`ccb help settings` lists them.")
    return names


def _unknown(key: str) -> UsageError:
    near = near_setting(key)
    do = f"Did you mean {near}?" if near else "`ccb help settings` lists them."
    return UsageError(f"there is no setting {shortened(key)!r}", do=do)


def _edit(environ: Mapping[str, str]) -> int:
    from ..terminal.editor import NoEditor, edit_file

    path = settings_path(environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        asyncio.run(edit_file(str(path), environ))
    except NoEditor as error:
        raise UsageError(str(error), do="Set EDITOR to an editor, or use `ccb config set`.") from None
    settings = load_settings(environ)
    say(*(f"ccb: {warning}" for warning in settings.warnings))
    print_line(f"{path} can be read, and counts from the next run on.")
    return ExitCode.OK


def schema_text(*, policy: bool = False) -> str:
    """Return the JSON schema of a settings file, or of the policy of a machine, for editors."""
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: object) -> bool:
            return False  # a title would be the name in another spelling

    made = TypeAdapter(Settings).json_schema(schema_generator=Untitled)
    for name in (*_NO_KEYS, *(() if policy else (POLICY,))):
        del made["properties"][name]
    for name in ("SettingsLayer", *(() if policy else ("PolicySettings",))):
        made["$defs"].pop(name, None)
    made["properties"] = {SCHEMA: {"type": "string", "description": "The schema of this file."}, **made["properties"]}
    return json.dumps({"$schema": _DRAFT, **made}, indent=2, ensure_ascii=False) + "\n"
