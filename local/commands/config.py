"""`ccb config`: the settings of this machine, where each comes from, and changes of the user's file."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.wire.settings_text import line_of

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.option_values import shortened
from ..command_line.transport_choice import needs_host
from ..config.project_records import Projects
from ..config.settings import (
    CLAUDE,
    MANAGED,
    POLICY,
    USER,
    Settings,
    SettingsChoice,
    SettingsLayer,
    near_setting,
    settings_path,
)
from ..config.settings_file import changed, read_settings_text, write_text
from ..config.settings_loading import JOINED, SCHEMA, load_settings
from ..terminal.console import print_line, say

_NAME = re.compile(r'"([^"]*)"|([^."]+)')
_NO_KEYS = ("given", "layers")
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_JOINED = (*JOINED, "hooks", POLICY)  # the keys whose values in different sources add up


def run_config(arguments: Arguments, environ: Mapping[str, str]) -> int:
    action, *words = arguments.rest
    if action == "show":
        return _show(arguments, environ)
    if action == "schema":
        print_line(*schema_text().splitlines())
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
    connection = arguments.connection
    settings = load_settings(environ, SettingsChoice(flag=arguments.sdk.settings))
    kept = Projects(environ)
    lines = [(f"{name} = {value}", where) for name, value, where in setting_lines(settings)]
    lines += [(line, f"kept: {kept.path}") for record in kept.all() for line in record.lines]
    if connection.target is not None or connection.local or not needs_host(connection):
        lines += _of_host(arguments, environ)
    say(*(f"ccb: {warning}" for warning in settings.warnings))
    imported = [layer for layer in settings.layers if layer.source == CLAUDE and layer.unknown]
    say(*(f"ccb: {layer.path}: ccb takes no {', '.join(layer.unknown)}" for layer in imported))
    shown = [line + (f"  ({where})" if arguments.host_command.origin else "") for line, where in lines]
    nothing = f"Nothing is set. Settings are in {settings_path(environ)}; `ccb help settings` lists them."
    print_line(*shown or [nothing])
    return ExitCode.OK


def setting_lines(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and origin of each value that counts; of values that add up, each by itself."""
    for layer, place, value in _values(settings):
        yield ".".join(_keys(place)), json.dumps(_shown(place, value), ensure_ascii=False), _origin(layer, place)


def _values(settings: Settings) -> Iterator[tuple[SettingsLayer, list[Any], Any]]:
    """Yield each of these values with its layer, and its place in the file of the layer."""
    for name in sorted({name for layer in settings.layers for name in layer.values}):
        setting = [layer for layer in settings.layers if name in layer.values]
        for layer in setting if name in _JOINED else setting[-1:]:
            for place, value in _parts([name], layer.values[name]):
                yield layer, place, value


def _parts(place: list[Any], value: Any) -> Iterator[tuple[list[Any], Any]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _parts([*place, key], each)
    elif isinstance(value, list) and place[0] == "permissions":
        yield from (([*place, index], rule) for index, rule in enumerate(value))
    else:
        yield place, value


def _keys(place: Sequence[Any]) -> list[str]:
    return [each for each in place if isinstance(each, str)]


def _origin(layer: SettingsLayer, place: Sequence[object]) -> str:
    return f"{layer.source}: {layer.path}" + (f", line {line_of(layer.text, place)}" if layer.text else "")


def _shown(place: Sequence[Any], value: Any) -> Any:
    """Return a value as JSON has it, without the variables and headers of MCP servers: they may hold keys."""
    if is_dataclass(value) and not isinstance(value, type):
        given = {each.name: getattr(value, each.name) for each in fields(value)}
        value = {name: each for name, each in given.items() if each is not None}
    if isinstance(value, dict):
        return {name: _shown([*place, name], each) for name, each in value.items()}
    if place[0] == "mcpServers" and len(place) == 4 and place[2] in ("env", "headers"):
        return "…"
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _of_host(arguments: Arguments, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    from .trust import read_host_project

    found = asyncio.run(read_host_project(arguments, environ))
    trusted = Projects(environ).find(found.host, found.directory.raw).trusted == found.fingerprint
    say(*(f"ccb: on the host: {problem}" for problem in found.problems))
    counts = "" if trusted else ", not trusted, so it does not count"
    lines = [(each.line, f"{each.origin}{counts}") for each in found.switches]
    return lines + [(each.line, f"{each.origin}") for each in found.policy]


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
    names = _names(key)
    given = [(layer, place, _keys(place)) for layer, place, _ in _values(settings)]
    origins = [_origin(layer, place) for layer, place, keys in given if names[: len(keys)] == keys[: len(names)]]
    return _shown(names, value), "; ".join(dict.fromkeys(origins)) or "default"


def change_setting(key: str, text: str, environ: Mapping[str, str]) -> str:
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
            settings = load_settings(environ, SettingsChoice(draft=after))
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
    whole = f"{'.'.join(names)}."
    if any(whole.startswith(f"{each}.") for layer in settings.layers if layer.source == USER for each in layer.unknown):
        raise _unknown(key)
    for layer, place, value in _values(settings):
        above = place == names[: len(place)] and not isinstance(value, dict | list)
        if layer.source == MANAGED and (above or (place[0] == names[0] and names[0] not in _JOINED)):
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


def schema_text() -> str:
    """Return the JSON schema of a settings file, also of the policy of a machine, for editors."""
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: object) -> bool:
            return False  # a title would be the name in another spelling

    made = TypeAdapter(Settings).json_schema(schema_generator=Untitled)
    for name in _NO_KEYS:
        del made["properties"][name]
    del made["$defs"]["SettingsLayer"]
    made["properties"] = {SCHEMA: {"type": "string", "description": "The schema of this file."}, **made["properties"]}
    return json.dumps({"$schema": _DRAFT, **made}, indent=2, ensure_ascii=False) + "\n"
