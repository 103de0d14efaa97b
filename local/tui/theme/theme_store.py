"""The theme that the person has chosen, kept on the laptop, and themes of their own.

A theme of one's own is a file `themes/NAME.json` beside the settings, with colours by their names:
`{"dark": true, "accent": "#ff9f43", "background": "#101010"}`. What it leaves out is as in the dark or light theme."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from textual.color import Color, ColorParseError
from textual.theme import Theme

from .themes import DARK, LIGHT

log = logging.getLogger(__name__)

_COLOURS = ("primary", "accent", "success", "warning", "error", "foreground", "background", "surface", "panel")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_MAX_BYTES = 64 << 10


class ThemeRefused(Exception):
    """A theme cannot be used; the text says why."""


class ThemeStore:
    """`kept` is the file with the name of the chosen theme, `own` the directory of the person's themes."""

    def __init__(self, kept: Path, own: Path) -> None:
        self._kept = kept
        self._own = own

    @staticmethod
    def of(environ: Mapping[str, str]) -> ThemeStore | None:
        """Return the store of a person, None without a home directory."""
        home = environ.get("HOME", "")
        if not Path(home).is_absolute():
            return None
        state = Path(environ.get("XDG_STATE_HOME") or Path(home, ".local", "state"))
        config = Path(environ.get("XDG_CONFIG_HOME") or Path(home, ".config"))
        return ThemeStore(state / "ccb" / "theme", config / "ccb" / "themes")

    def load(self) -> str:
        """Return the name that was kept, "" for none."""
        try:
            name = self._kept.read_text(encoding="utf-8")[:100].strip()
        except (OSError, ValueError):
            return ""
        return name if _NAME.fullmatch(name) else ""

    def keep(self, name: str) -> None:
        """Keep a name; "" forgets it. A file that cannot be written only means that nothing is kept."""
        try:
            if not name:
                self._kept.unlink(missing_ok=True)
                return
            self._kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._kept.write_text(f"{name}\n", encoding="utf-8")
        except OSError as error:
            log.warning("the theme cannot be kept: %s", error)

    def own_names(self) -> list[str]:
        """Return the names of the person's own themes."""
        try:
            found = sorted(each.stem for each in self._own.iterdir() if each.suffix == ".json")
        except OSError:
            return []
        return [name for name in found if _NAME.fullmatch(name)]

    def read(self, name: str) -> Theme | None:
        """Return a theme of the person, or None for an unknown name. Raise ThemeRefused."""
        path = self._own / f"{name}.json"
        if not _NAME.fullmatch(name) or not path.is_file():
            return None
        try:
            with path.open("rb") as file:
                fields = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError) as error:
            raise ThemeRefused(f"{path}: {error}") from None
        if not isinstance(fields, dict):
            raise ThemeRefused(f"{path}: a theme is an object with colours")
        dark = fields.pop("dark", True)
        for key, value in fields.items():
            if key not in _COLOURS or not _is_colour(value):
                what = (
                    f"{value!r} is no colour" if key in _COLOURS else f"a theme has the colours {', '.join(_COLOURS)}"
                )
                raise ThemeRefused(f"{path}: {key}: {what}")
        return replace(DARK if dark is not False else LIGHT, name=f"ccb-own-{name}", **fields)


def _is_colour(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return Color.parse(value).ansi is None
    except ColorParseError:
        return False
