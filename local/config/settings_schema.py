"""Check the content of the settings file with pydantic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ccb.tunnel.errors import ConfigError

from .settings import RuleSettings, Settings

SETTING_NAMES = tuple(each.name for each in fields(Settings) if each.metadata)


def validated(path: Path, data: Mapping[str, Any]) -> Settings:
    """Return the settings that the object `data` of the file `path` sets. Raises ConfigError, which names the key."""
    known, unknown = _split(data, SETTING_NAMES)
    if isinstance(rules := known.get("permissions"), dict):
        known["permissions"], others = _split(rules, tuple(each.name for each in fields(RuleSettings)))
        unknown += [f"permissions.{name}" for name in others]
    try:
        settings = TypeAdapter(Settings).validate_json(json.dumps(known))  # strict mode takes no dict for a dataclass
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"{path}: {key}: {first['msg']}", do=f"Correct {key!r} in {path}, or remove it for the default."
        ) from None
    return replace(settings, given=frozenset(known), unknown=tuple(unknown))


def _split(data: Mapping[str, Any], names: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    """Return the part of `data` with these names, and the other names."""
    return {name: data[name] for name in data if name in names}, [name for name in data if name not in names]
