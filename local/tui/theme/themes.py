"""The dark and the light theme, whose colours are all readable on their background, and the choice between them."""

from __future__ import annotations

from collections.abc import Mapping

from textual.color import Color
from textual.theme import Theme

DARK = Theme(
    name="ccb-dark",
    primary="#6cb6ff",
    accent="#6cb6ff",
    success="#57c26b",
    warning="#dca43b",
    error="#ff7b72",
    foreground="#d7dce2",
    background="#14171c",
    surface="#1d2128",
    panel="#262b33",
    dark=True,
    variables={
        "border-blurred": "#3a414c",
        "border": "#6cb6ff",
        "scrollbar": "#39414d",
        "scrollbar-background": "#14171c",
        "screen-selection-background": "#2b4a6f",
        "screen-selection-foreground": "#ffffff",
        "input-selection-background": "#2b4a6f",
        "input-selection-foreground": "#ffffff",
    },
)
LIGHT = Theme(
    name="ccb-light",
    primary="#0550ae",
    accent="#0550ae",
    success="#116329",
    warning="#8a5a00",
    error="#b3202c",
    foreground="#1f2328",
    background="#fbfbfa",
    surface="#eeeeec",
    panel="#e4e4e1",
    dark=False,
    variables={
        "border-blurred": "#c3c6ca",
        "border": "#0550ae",
        "scrollbar": "#c3c6ca",
        "scrollbar-background": "#fbfbfa",
        "screen-selection-background": "#b6d4fb",
        "screen-selection-foreground": "#101418",
        "input-selection-background": "#b6d4fb",
        "input-selection-foreground": "#101418",
    },
)
THEMES = {"dark": DARK.name, "light": LIGHT.name}


def fitting_theme(environ: Mapping[str, str]) -> str:
    """Return the theme for this terminal: from COLORFGBG ("15;0": white on black) if it is set, else dark."""
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT.name if background in ("7", "15") else DARK.name


def muted(foreground: str, background: str) -> str:
    """Return a colour for less important text that is still readable (contrast over 4.5)."""
    return Color.parse(background).blend(Color.parse(foreground), 0.7).hex
