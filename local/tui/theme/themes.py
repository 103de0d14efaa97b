"""The themes: dark and light, each with colours of our own, which are readable on their background, with strong
contrast, and with the 16 of the terminal; and the choice between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rich.console import Console
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from ccb.tunnel.wire.dataclass import dataclass

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


def _ansi(name: str, accent: str, warning: str, *, dark: bool) -> Theme:
    """A theme of the 16 colours that the terminal itself defines, on its own background."""
    marked = {"background": "ansi_default", "foreground": "ansi_default", "text-style": "reverse"}
    return Theme(
        name=name,
        ansi=True,
        primary=accent,
        accent=accent,
        success="ansi_green",
        warning=warning,
        error="ansi_red",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        boost="ansi_default",
        dark=dark,
        variables={
            **BUILTIN_THEMES["ansi-dark" if dark else "ansi-light"].variables,
            "border-blurred": "ansi_default",
            "border": accent,
            "scrollbar": "ansi_bright_black" if dark else "ansi_white",
            "scrollbar-background": "ansi_default",
            **{f"screen-selection-{each}": value for each, value in marked.items()},
            **{f"input-selection-{each}": value for each, value in marked.items()},
            **{f"input-cursor-{each}": value for each, value in marked.items()},
        },
    )


ANSI_DARK = _ansi("ccb-ansi-dark", "ansi_cyan", "ansi_yellow", dark=True)
ANSI_LIGHT = _ansi("ccb-ansi-light", "ansi_blue", "ansi_magenta", dark=False)
HIGH_CONTRAST = replace(
    DARK,
    name="ccb-high-contrast",
    primary="#7ee0ff",
    accent="#7ee0ff",
    success="#6dff8b",
    warning="#ffe14d",
    error="#ff9d96",
    foreground="#ffffff",
    background="#000000",
    surface="#101010",
    panel="#1c1c1c",
    variables={**DARK.variables, "border-blurred": "#c0c0c0", "border": "#7ee0ff", "scrollbar-background": "#000000"},
)
HIGH_CONTRAST_LIGHT = replace(
    LIGHT,
    name="ccb-high-contrast-light",
    primary="#00307a",
    accent="#00307a",
    success="#004d12",
    warning="#5a3600",
    error="#7a0010",
    foreground="#000000",
    background="#ffffff",
    surface="#f2f2f2",
    panel="#e6e6e6",
    variables={**LIGHT.variables, "border-blurred": "#404040", "border": "#00307a", "scrollbar-background": "#ffffff"},
)
ALL_THEMES = (DARK, LIGHT, ANSI_DARK, ANSI_LIGHT, HIGH_CONTRAST, HIGH_CONTRAST_LIGHT)
THEME_NAMES = ("dark", "light", "high-contrast", "high-contrast-light", "ansi")
"""What a person may choose, besides `auto` and their own themes."""


@dataclass(frozen=True)
class TerminalColours:
    """What is known of a terminal's colours. `few`: it shows at most 16, or the person wants none. `light` is None if
    the background is not known."""

    few: bool = False
    light: bool | None = None

    @property
    def themes(self) -> Mapping[str, str]:
        """The names of themes by what a person calls them."""
        if self.few:
            return {"dark": ANSI_DARK.name, "light": ANSI_LIGHT.name}
        ansi = ANSI_LIGHT.name if self.light else ANSI_DARK.name
        strong = {"high-contrast": HIGH_CONTRAST.name, "high-contrast-light": HIGH_CONTRAST_LIGHT.name}
        return {"dark": DARK.name, "light": LIGHT.name, "ansi": ansi, **strong}

    @property
    def theme(self) -> str:
        """The theme that fits; a dark one if the background is not known."""
        return self.themes["light" if self.light else "dark"]


def wants_no_colour(environ: Mapping[str, str]) -> bool:
    """Return whether NO_COLOR says that no colours are wanted. An empty one says nothing (no-color.org)."""
    return bool(environ.get("NO_COLOR"))


def terminal_colours(environ: Mapping[str, str]) -> TerminalColours:
    """Return what the environment says: COLORTERM and TERM of the number of colours, NO_COLOR that none are wanted, and
    COLORFGBG ("15;0": white on black) of the background."""
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    light = background in ("7", "15") if background.isdecimal() else None
    named = {name: value for name, value in environ.items() if name != "NO_COLOR"}
    console = Console(force_terminal=True, legacy_windows=False, _environ=named)
    return TerminalColours(wants_no_colour(environ) or console.color_system not in ("256", "truecolor"), light)


def muted(foreground: str, background: str) -> str:
    """Return a style for less important text that is still readable (contrast over 4.5)."""
    if Color.parse(foreground).ansi is not None:
        return "dim"
    return Color.parse(background).blend(Color.parse(foreground), 0.7).hex
