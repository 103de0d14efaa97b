"""The person's settings file: `~/.config/ccb/settings.json`, or below XDG_CONFIG_HOME. It must not hold a secret.

The limits of the values are for pydantic, which is loaded only if there is a file: loading it takes a quarter of the
time to the worker's start.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.openssh.sharing import Sharing

from .settings_file import read_settings_file

PermissionMode = Literal["default", "acceptEdits", "plan", "bypassPermissions"]
SandboxMode = Literal["read-only", "workspace", "off"]

_SECRET_NAME = re.compile(r"api_?-?key|auth_?-?token|secret|password", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"\bsk-[A-Za-z0-9_-]{8,}")
_MAX_KEEP_MINUTES = 24 * 60
_PYDANTIC = {"strict": True}


def _key(description: str, **limits: float) -> dict[str, object]:
    """Return the metadata of a key, in the words of pydantic's `Field`."""
    return {"description": description, **limits}


@dataclass(frozen=True)
class RuleSettings:
    """Permission rules of every session, spelt as for `--allowedTools` and `--disallowedTools`."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _PYDANTIC

    allow: list[str] = field(
        default_factory=list,
        metadata=_key("Rules that allow a tool call without asking, as for `--allowedTools`."),
    )
    deny: list[str] = field(
        default_factory=list, metadata=_key("Rules that deny a tool call, as for `--disallowedTools`.")
    )


@dataclass(frozen=True)
class Settings:
    """The content of the settings file. An option on the command line outranks it."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = _PYDANTIC

    apiKeyHelper: str | None = field(
        default=None, metadata=_key("Shell command that prints the model credential.", min_length=1)
    )
    model: str | None = field(
        default=None,
        metadata=_key(
            "Model of new sessions: an alias (`opus`, `sonnet`, `haiku`) or a full name.",
            min_length=1,
        ),
    )
    permissionMode: PermissionMode | None = field(default=None, metadata=_key("Permission mode of new sessions."))
    sandbox: SandboxMode | None = field(
        default=None,
        metadata=_key("Sandbox mode of new sessions: the cage of commands that run without a question."),
    )
    permissions: RuleSettings = field(default_factory=RuleSettings, metadata=_key("Permission rules of every session."))
    connectTimeoutSeconds: float = field(
        default=30,
        metadata=_key(
            "Seconds to reach the host and log in. Set here, it limits a headless run as a whole.", gt=0, le=600
        ),
    )
    pipelinedLogin: bool = field(
        default=True,
        metadata=_key(
            "Whether a login with the built-in SSH sends at once what the last login to the host needed, "
            "if that was one key alone."
        ),
    )
    graceHours: float = field(
        default=24,
        metadata=_key(
            "Hours that a session works or waits on the host while no client is connected.", gt=0, le=24 * 365
        ),
    )
    idleMinutes: float = field(
        default=30,
        metadata=_key(
            "Minutes that an idle worker without a client stays on the host; its journal stays.", ge=0, le=60 * 24 * 7
        ),
    )
    controlMaster: bool = field(
        default=True, metadata=_key("Run over a ControlMaster of yours that is alive, instead of logging in.")
    )
    keepConnection: float = field(
        default=0,
        metadata=_key(
            "Minutes to keep an SSH connection for later runs, after which they log in again (0: each run logs in).",
            ge=0,
            le=_MAX_KEEP_MINUTES,
        ),
    )
    given: frozenset[str] = frozenset()
    """The keys that the file sets."""
    unknown: tuple[str, ...] = ()
    """The keys in the file that this version does not know. They have no effect."""

    def warnings(self, path: Path) -> list[str]:
        """Return one sentence for each unknown key."""
        return [f"{path}: unknown key {name!r} has no effect" for name in self.unknown]


SETTING_NAMES = tuple(each.name for each in fields(Settings) if each.metadata)


def config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of ccb's configuration. It may not exist."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not Path(base).is_absolute():  # the XDG rule: a relative value is ignored
        base = str(Path(environ["HOME"] if environ.get("HOME") else Path.home()) / ".config")
    return Path(base) / "ccb"


def settings_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the settings file. It may not exist."""
    return config_dir(environ) / "settings.json"


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings; without a file, return the defaults. Raises ConfigError, which names the file and the key."""
    path = settings_path(environ)
    data = read_settings_file(path, environ)
    if data is None:
        return Settings()
    _refuse_secrets(path, data)
    return _validated(path, data)


def load_sharing(environ: Mapping[str, str] = os.environ) -> Sharing:
    """Return which connections may be shared. This is known before the first packet, so nothing slow is loaded for it.

    A file that cannot be used has no effect here: `load_settings` reports it.
    """
    try:
        data = read_settings_file(settings_path(environ), environ) or {}
    except ConfigError:
        data = {}
    minutes = data.get("keepConnection", 0)
    keeps = isinstance(minutes, int | float) and not isinstance(minutes, bool) and 0 < minutes <= _MAX_KEEP_MINUTES
    return Sharing(own_master=data.get("controlMaster") is not False, keep_s=minutes * 60 if keeps else 0)


def _refuse_secrets(path: Path, data: Mapping[str, Any]) -> None:
    """Raise ConfigError if a value looks like a key.

    Files are backed up and copied; the keyring is the place for keys.
    """
    for name, value in data.items():
        named = name != "apiKeyHelper" and _SECRET_NAME.search(name)
        if named or _SECRET_VALUE.search(json.dumps(value)):
            raise ConfigError(
                f"{path}: {name}: settings must not hold a secret",
                do="Remove it, and give the key to `ccb auth login` or to an environment variable.",
            )


def _validated(path: Path, data: Mapping[str, Any]) -> Settings:
    """Return the settings that the object `data` of the file `path` sets. Raises ConfigError, which names the key."""
    from pydantic import TypeAdapter, ValidationError

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
