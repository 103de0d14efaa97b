"""The person's settings file: `~/.config/ccb/settings.json`, or below XDG_CONFIG_HOME. It must not hold a secret."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ccb.tunnel.errors import ConfigError

from .settings_file import read_settings_file

PermissionMode = Literal["default", "acceptEdits", "plan", "bypassPermissions"]
SandboxMode = Literal["read-only", "workspace", "off"]

_SECRET_NAME = re.compile(r"api_?-?key|auth_?-?token|secret|password", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"\bsk-[A-Za-z0-9_-]{8,}")


class RuleSettings(BaseModel):
    """Permission rules of every session, spelt as for `--allowedTools` and `--disallowedTools`."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    allow: list[str] = Field(
        default=[], description="Rules that allow a tool call without asking, as for `--allowedTools`."
    )
    deny: list[str] = Field(default=[], description="Rules that deny a tool call, as for `--disallowedTools`.")


class Settings(BaseModel):
    """The content of the settings file. An option on the command line outranks it."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    apiKeyHelper: str | None = Field(
        default=None, min_length=1, description="Shell command that prints the model credential."
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="Model of new sessions: an alias (`opus`, `sonnet`, `haiku`) or a full name.",
    )
    permissionMode: PermissionMode | None = Field(default=None, description="Permission mode of new sessions.")
    sandbox: SandboxMode | None = Field(
        default=None, description="Sandbox mode of new sessions: the cage of commands that run without a question."
    )
    permissions: RuleSettings = Field(default=RuleSettings(), description="Permission rules of every session.")
    connectTimeoutSeconds: float = Field(
        default=30,
        gt=0,
        le=600,
        description="Seconds to reach the host and log in. Set here, it limits a headless run as a whole.",
    )
    graceHours: float = Field(
        default=24,
        gt=0,
        le=24 * 365,
        description="Hours that a session works or waits on the host while no client is connected.",
    )
    idleMinutes: float = Field(
        default=30,
        ge=0,
        le=60 * 24 * 7,
        description="Minutes that an idle worker without a client stays on the host; its journal stays.",
    )

    def warnings(self, path: Path) -> list[str]:
        """Return one sentence for each key that this version does not know. Such keys have no effect."""
        unknown = [*(self.model_extra or {}), *(f"permissions.{name}" for name in self.permissions.model_extra or {})]
        return [f"{path}: unknown key {name!r} has no effect" for name in unknown]


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
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"{path}: {key}: {first['msg']}", do=f"Correct {key!r} in {path}, or remove it for the default."
        ) from None


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
