"""Merge the sources of settings. What cannot be used before the first frame has no effect there and is told later."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.transports.pipe import Sharing
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.settings_text import line_of

from ..terminal.keymap import DEFAULT_KEYMAP, Keymap, KeyRefused, keymap_of
from . import settings_file
from .claude_settings import read_claude_settings
from .settings import (
    EVERYTHING,
    FLAG,
    MANAGED,
    MAX_KEEP,
    POLICY,
    USER,
    PolicySettings,
    Settings,
    SettingsChoice,
    SettingsLayer,
    policy_file,
    settings_path,
)

JOINED = (
    *("permissions", "budgets", "modelCalls", "credentials", "network", "otel"),
    *("env", "keys", "mcpServers", "modelAliases", "providers"),
)
"""The keys whose entries in different sources add up."""
SCHEMA = "$schema"  # for editors; it sets nothing
_NO_KEYS = [each.name for each in fields(Settings) if not each.metadata]
_PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
_SECRET_KEY = re.compile(r"api_?-?key$|token$|secret|password|^key$", re.IGNORECASE)
_OLD_IMAGES = ("auto", "kitty", "iterm2", "sixel", "blocks")  # how images were drawn, which is no choice any more


@dataclass(frozen=True)
class ScreenSettings:
    """`mouse`: the REPL uses the mouse. `vim`: the input has vim's keys. `images`: images are drawn. `status_line`: a
    command."""

    keymap: Keymap = DEFAULT_KEYMAP
    mouse: bool = True
    vim: bool = False
    images: bool = True
    status_line: str = ""


DEFAULT_SCREEN = ScreenSettings()


def load_screen_settings(
    environ: Mapping[str, str] = os.environ, choice: SettingsChoice = EVERYTHING, *, no_mouse: bool = False
) -> ScreenSettings:
    found: dict[str, Any] = {}
    keys: dict[str, object] = {}
    with suppress(ConfigError, UsageError):  # the sources up to one that cannot be read count
        for _, path, text in _sources(environ, choice):
            values = settings_file.parse_settings(path, text) if text is not None else {}
            found |= values
            if isinstance(given := values.get("keys"), dict):
                keys |= given
    try:
        keymap = keymap_of(keys)
    except KeyRefused:
        keymap = DEFAULT_KEYMAP
    mouse = found.get("mouse") is not False and not no_mouse
    vim, images = found.get("editorMode") == "vim", found.get("images") != "off"
    line = found.get("statusLine")
    command = line.get("command") if isinstance(line, dict) else ""
    return ScreenSettings(keymap, mouse, vim, images, command if isinstance(command, str) else "")


def keep_setting(environ: Mapping[str, str], keys: Sequence[str], value: object) -> None:
    """Write a value below `keys` into the settings file, None for no value, and keep all else. Raise ConfigError."""
    path = settings_path(environ)
    text = settings_file.read_settings_text(path, environ) or ""
    settings_file.write_text(path, settings_file.changed(str(path), text, keys, value))


def load_settings(environ: Mapping[str, str] = os.environ, choice: SettingsChoice = EVERYTHING) -> Settings:
    """Read all sources on this machine. Raise ConfigError, which names the file, the line and the key."""
    read = [_layer(source, path, text) for source, path, text in _sources(environ, choice) if text is not None]
    imported = list(_imported(environ, [layer for layer, _ in read])) if choice.user else []
    if not read and not imported:
        return Settings()
    layers = (*imported, *(layer for layer, _ in read))
    if len(read) == 1 and not imported:
        settings = read[0][1]
    else:
        settings, _ = _validated(_merged(layers), layers[0].path, layers[0].text)
    try:
        keymap_of(settings.keys)
    except KeyRefused as error:
        wrong = next(each for each in reversed(layers) if error.id in each.values.get("keys", {}))
        raise ConfigError(
            f"{wrong.path}, line {line_of(wrong.text, ('keys', error.id))}: keys.{error.id}: {error}",
            do=f"Correct keys.{error.id} in {wrong.path}, or remove it.",
        ) from None
    given = frozenset(name for layer in layers for name in layer.values)
    return replace(settings, given=given, layers=layers)


def _imported(environ: Mapping[str, str], own: Sequence[SettingsLayer]) -> Iterator[SettingsLayer]:
    """Yield the settings of Claude Code that count, unless those of ccb switch them off."""
    said = [layer.values["importClaudeSettings"] for layer in own if "importClaudeSettings" in layer.values]
    how = said[-1] if said else "on"
    for layer in read_claude_settings(environ, hooks=how == "hooks") if how != "off" else ():
        unknown, notes = [*layer.unknown], [*layer.notes]
        values: dict[str, Any] = {}
        for name, value in layer.values.items():
            one = {name: copy.deepcopy(value)}
            try:
                unknown += _validated(one, layer.path, layer.text)[1]
                settings_file.refuse_broken_rules(layer.path, layer.text, one.get("permissions", {}))
            except ConfigError as error:
                unknown.append(name)
                notes.append(f"{error.what}; {name} of this file does not count")
            else:
                values |= one
        yield replace(layer, values=values, unknown=tuple(unknown), notes=tuple(notes))


def _sources(environ: Mapping[str, str], choice: SettingsChoice) -> Iterator[tuple[str, str, str | None]]:
    """Yield each source with its path and its text, the weakest first. Raises ConfigError, UsageError."""
    path, text = settings_path(environ), choice.draft
    if text is None and choice.user:
        text = settings_file.read_settings_text(path, environ)
    yield USER, str(path), text
    yield FLAG, *_flagged(choice.flag)
    held = policy_file()
    yield MANAGED, str(held), settings_file.read_settings_text(held, {}, owners=(0,))


def load_policy() -> PolicySettings:
    """Return what nobody can pass on this machine, whatever the environment says. Raise ConfigError."""
    return load_settings({}, SettingsChoice(user=False)).policy


def load_sharing(environ: Mapping[str, str] = os.environ) -> Sharing:
    """Return which connections may be shared, without loading anything slow: it is known before the first packet."""
    data: dict[str, Any] = {}
    try:
        for _, path, text in _sources(environ, EVERYTHING):
            data |= settings_file.parse_settings(path, text) if text is not None else {}
    except ConfigError:
        data = {"pipelinedLogin": False}
    minutes, pipelined = data.get("keepConnection", 0), data.get("pipelinedLogin", True) is True
    keeps = isinstance(minutes, int | float) and not isinstance(minutes, bool) and 0 < minutes <= MAX_KEEP
    return Sharing(data.get("controlMaster") is not False, minutes * 60 if keeps else 0, pipelined)


def _flagged(flag: str | None) -> tuple[str, str | None]:
    if flag is None or flag.lstrip().startswith("{"):
        return "--settings", flag
    try:
        return flag, Path(flag).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        what = f"Error: Settings file not found: {flag}" if missing else f"{flag} cannot be read"
        raise UsageError(what, evidence="" if missing else str(error), do="Give a JSON object or a file.") from None


def _layer(source: str, path: str, text: str) -> tuple[SettingsLayer, Settings]:
    values = settings_file.parse_settings(path, text)
    values.pop(SCHEMA, None)
    settings_file.refuse_secrets(path, text, values)
    unknown = [name for name in (*_NO_KEYS, *(() if source == MANAGED else (POLICY,))) if name in values]
    if isinstance(values.get("sandbox"), dict):  # the family's key of this name is an object with other content
        unknown.append("sandbox")
    for name in unknown:
        del values[name]
    if values.get("images") in _OLD_IMAGES:
        values["images"] = "on"
    if isinstance(providers := values.get("providers"), dict):
        for name, provider in providers.items():
            _check_provider(path, text, name, provider)
    settings, more = _validated(values, path, text)
    if source == MANAGED and (unknown or more):
        name = (*unknown, *more)[0]
        where = f"{path}, line {line_of(text, name.split('.'))}"
        do = "Correct it (`ccb config schema` has the keys): what it is to hold would not hold."
        raise ConfigError(f"{where}: unknown key {name!r} in the policy of this machine", do=do)
    settings_file.refuse_broken_rules(path, text, values.get("permissions", {}))
    settings_file.refuse_wrong_models(path, text, values)
    return SettingsLayer(source, path, text, values, (*unknown, *more)), settings


def _check_provider(path: str, text: str, name: str, given: object) -> None:
    """Raise ConfigError for a name that no model can have in front of it, and for a key that would hold a secret."""
    where = f"{path}, line {line_of(text, ('providers', name))}: providers.{name}"
    if not _PROVIDER_NAME.fullmatch(name):
        raise ConfigError(f"{where}: this cannot be the name of a provider", do="Use small letters and digits.")
    secret = next((each for each in given if _SECRET_KEY.search(each)), None) if isinstance(given, dict) else None
    if secret is not None:
        raise ConfigError(
            f"{where}.{secret}: settings must not hold a secret",
            do="Name the variable that holds the key in keyVariable, or a command that prints it in keyHelper.",
        )


def _validated(values: dict[str, Any], path: str, text: str) -> tuple[Settings, list[str]]:
    """Return the settings with these values, and the names of unknown keys, which are removed. Raise ConfigError."""
    from pydantic import TypeAdapter, ValidationError

    kind = TypeAdapter(Settings)
    unknown: list[str] = []
    while True:
        try:  # strict mode takes no dict for a dataclass
            return kind.validate_json(json.dumps(values)), sorted(unknown, key=lambda name: name.count("."))
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
        wrong = next((each for each in found if each["type"] != "unexpected_keyword_argument"), None)
        if wrong is not None:
            key = ".".join(str(part) for part in wrong["loc"])
            raise ConfigError(
                f"{path}, line {line_of(text, wrong['loc'])}: {key}: {wrong['msg']}",
                do=f"Correct {key!r} in {path}, or remove it for the default.",
            )
        for each in found:
            *parents, last = each["loc"]
            place: Any = values
            for part in parents:
                place = place[part]
            del place[last]
            unknown.append(".".join(map(str, each["loc"])))


def _merged(layers: Sequence[SettingsLayer]) -> dict[str, Any]:
    """Return the values of all layers: the strongest counts, and lists of rules are joined."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.values.items():
            if name in JOINED and name in merged:
                before = merged[name]
                lists = {key: each for key, each in value.items() if isinstance(each, list)}
                if name == "keys" or (layer.source == MANAGED and name != "permissions"):
                    lists = {}  # what a policy lists, nobody adds to
                if layer.source == MANAGED and name == "modelCalls":
                    before = {**before, "hosts": {}}  # those of a person would outrank it
                joined = {key: [*before.get(key, []), *each] for key, each in lists.items()}
                value = {**before, **value, **joined}
            merged[name] = value
    return merged
