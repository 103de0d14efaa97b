"""Merge the sources of settings.

They are read before anything is shown, so nothing slow is loaded for them. What cannot be used has no effect here:
`load_settings` reports it while the connection is made.
"""

from __future__ import annotations

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
from .settings import (
    EVERYTHING,
    FLAG,
    MANAGED,
    MAX_KEEP_MINUTES,
    SETTING_NAMES,
    USER,
    BudgetSettings,
    CredentialSettings,
    ModelCallSettings,
    ModelSettings,
    NetworkSettings,
    ProviderSettings,
    RuleSettings,
    Section,
    Settings,
    SettingsChoice,
    SettingsLayer,
    settings_path,
)
from .settings_file import (
    parse_settings,
    read_settings_file,
    read_settings_text,
    refuse_broken_keys,
    refuse_broken_rules,
    refuse_secrets,
    refuse_wrong_models,
    write_settings,
)


@dataclass(frozen=True)
class ScreenSettings:
    """`mouse`: the REPL uses the mouse. `vim`: the input has vim's keys. `images`: images are drawn."""

    keymap: Keymap = DEFAULT_KEYMAP
    mouse: bool = True
    vim: bool = False
    images: bool = True


DEFAULT_SCREEN = ScreenSettings()


def load_screen_settings(
    environ: Mapping[str, str] = os.environ, choice: SettingsChoice = EVERYTHING
) -> ScreenSettings:
    """Read these settings of all sources on this machine."""
    found: dict[str, Any] = {}
    keys: dict[str, object] = {}
    for values in raw_settings(environ, choice):
        found |= values
        if isinstance(given := values.get("keys"), dict):
            keys |= given
    try:
        keymap = keymap_of(keys)
    except KeyRefused:
        keymap = DEFAULT_KEYMAP
    return ScreenSettings(
        keymap,
        found.get("mouse") is not False,
        found.get("editorMode") == "vim",
        found.get("images") != "off",
    )


def keep_editor_mode(*, vim: bool, environ: Mapping[str, str] = os.environ) -> None:
    """Keep in the settings file whether the input has vim's keys. Raise ConfigError."""
    write_settings(settings_path(environ), environ, {"editorMode": "vim" if vim else "normal"})


_SECTIONS: Mapping[str, type[Section]] = {
    "permissions": RuleSettings,
    "budgets": BudgetSettings,
    "modelCalls": ModelCallSettings,
    "credentials": CredentialSettings,
    "network": NetworkSettings,
}
_PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
_SECRET_KEY = re.compile(r"api_?-?key$|token$|secret|password|^key$", re.IGNORECASE)
_OLD_IMAGES = ("auto", "kitty", "iterm2", "sixel", "blocks")  # how images were drawn, which is no choice any more


def load_settings(environ: Mapping[str, str] = os.environ, choice: SettingsChoice = EVERYTHING) -> Settings:
    """Read the settings of all sources on this machine; without any, return the defaults. Raises ConfigError, which
    names the file, the line and the key."""
    layers = tuple(_layer(*each) for each in _sources(environ, choice) if each[2] is not None)
    if not layers:
        return Settings()
    settings = _validated(_merged(layers), {layer.path: layer.text for layer in layers}) if len(layers) > 1 else None
    settings = settings or _validated(layers[0].values, {layers[0].path: layers[0].text})
    refuse_broken_keys([(each.path, each.text, each.values.get("keys", {})) for each in layers], settings.keys)
    given = frozenset(name for layer in layers for name in layer.values)
    return replace(settings, given=given, layers=layers)


def _sources(environ: Mapping[str, str], choice: SettingsChoice) -> Iterator[tuple[str, str, str | None]]:
    """Yield each source with its path and its text, the weakest first. Raises ConfigError, UsageError."""
    path = settings_path(environ)
    yield USER, str(path), read_settings_text(path, environ) if choice.user else None
    yield FLAG, *_flagged(choice.flag)
    yield MANAGED, str(choice.managed), read_settings_text(choice.managed, environ)


def raw_settings(environ: Mapping[str, str], choice: SettingsChoice) -> Iterator[dict[str, Any]]:
    """Yield what the sources say, the weakest first, without a look at the values. It ends at a source that cannot be
    read: `load_settings` reports that."""
    with suppress(ConfigError, UsageError):
        for _, path, text in _sources(environ, choice):
            if text is not None:
                yield parse_settings(path, text)


def load_sharing(environ: Mapping[str, str] = os.environ) -> Sharing:
    """Return which connections may be shared. This is known before the first packet, so nothing slow is loaded for it.

    A file that cannot be used has no effect here: `load_settings` reports it.
    """
    try:
        data = read_settings_file(settings_path(environ), environ) or {}
    except ConfigError:
        data = {}
    minutes = data.get("keepConnection", 0)
    keeps = isinstance(minutes, int | float) and not isinstance(minutes, bool) and 0 < minutes <= MAX_KEEP_MINUTES
    return Sharing(own_master=data.get("controlMaster") is not False, keep_s=minutes * 60 if keeps else 0)


def _flagged(flag: str | None) -> tuple[str, str | None]:
    if flag is None or flag.lstrip().startswith("{"):
        return "--settings", flag
    try:
        return flag, Path(flag).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        what = f"Error: Settings file not found: {flag}" if missing else f"{flag} cannot be read"
        raise UsageError(what, evidence="" if missing else str(error), do="Give a JSON object or a file.") from None


def _layer(source: str, path: str, text: str | None) -> SettingsLayer:
    assert text is not None
    data = parse_settings(path, text)
    refuse_secrets(path, text, data)
    known, unknown = _split(data, SETTING_NAMES)
    if isinstance(known.get("sandbox"), dict):  # the family's key of this name is an object with other content
        del known["sandbox"]
        unknown.append("sandbox")
    if known.get("images") in _OLD_IMAGES:
        known["images"] = "on"
    for section, keys in _SECTIONS.items():
        if isinstance(values := known.get(section), dict):
            known[section], others = _split_class(values, keys, f"{section}.")
            unknown += others
    if isinstance(providers := known.get("providers"), dict):
        known["providers"] = {}
        for name, provider in providers.items():
            known["providers"][name], others = _split_provider(path, text, name, provider)
            unknown += others
    _validated(known, {path: text})
    refuse_broken_rules(path, text, known.get("permissions", {}))
    refuse_wrong_models(path, text, known)
    return SettingsLayer(source, path, text, known, tuple(unknown))


def _split_provider(path: str, text: str, name: str, given: object) -> tuple[object, list[str]]:
    """Return the known part of the settings of a provider, and the other keys. Raise ConfigError for a name that no
    model can have in front of it, and for a key that would hold a secret."""
    where = f"{path}, line {line_of(text, ('providers', name))}: providers.{name}"
    if not _PROVIDER_NAME.fullmatch(name):
        raise ConfigError(f"{where}: this cannot be the name of a provider", do="Use small letters and digits.")
    if not isinstance(given, dict):
        return given, []
    known, others = _split_class(given, ProviderSettings, f"providers.{name}.")
    secret = next((each for each in given if _SECRET_KEY.search(each)), None)
    if secret is not None:
        raise ConfigError(
            f"{where}.{secret}: settings must not hold a secret",
            do="Name the variable that holds the key in keyVariable, or a command that prints it in keyHelper.",
        )
    models = known.get("models")
    if isinstance(models, dict):
        known["models"] = {}
        for model, facts in models.items():
            known["models"][model] = facts
            if isinstance(facts, dict):
                known["models"][model], more = _split_class(facts, ModelSettings, f"providers.{name}.models.{model}.")
                others += more
    return known, others


def _validated(known: Mapping[str, Any], texts: Mapping[str, str]) -> Settings:
    """Return the settings with these values. Raises ConfigError, which names the file, the line and the key. `texts`
    are the files with their content."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Settings).validate_json(json.dumps(known))  # strict mode takes no dict for a dataclass
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        path, text = next(iter(texts.items()))
        line = line_of(text, first["loc"])
        raise ConfigError(
            f"{path}, line {line}: {key}: {first['msg']}",
            do=f"Correct {key!r} in {path}, or remove it for the default.",
        ) from None


def _merged(layers: Sequence[SettingsLayer]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.values.items():
            if name in (*_SECTIONS, "env", "keys", "mcpServers", "modelAliases", "providers") and name in merged:
                before = merged[name]
                lists = {} if name == "keys" else {key: each for key, each in value.items() if isinstance(each, list)}
                joined = {key: [*before.get(key, []), *each] for key, each in lists.items()}
                merged[name] = {**before, **value, **joined}
            else:
                merged[name] = value
    return merged


def _split(data: Mapping[str, Any], names: Sequence[str], place: str = "") -> tuple[dict[str, Any], list[str]]:
    known = {name: value for name, value in data.items() if name in names}
    return known, [f"{place}{name}" for name in data if name not in names]


def _split_class(data: Mapping[str, Any], kind: type, place: str) -> tuple[dict[str, Any], list[str]]:
    return _split(data, [each.name for each in fields(kind)], place)
