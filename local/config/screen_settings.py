"""The settings that the first frame of the REPL needs: keys, mouse, and how the input edits.

They are read before anything is shown, so nothing slow is loaded for them. What cannot be used has no effect here:
`load_settings` reports it while the connection is made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

from ..terminal.keymap import DEFAULT_KEYMAP, Keymap, KeyRefused, keymap_of
from .settings import EVERYTHING, SettingsChoice, settings_path
from .settings_file import write_settings
from .settings_loading import raw_settings


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
