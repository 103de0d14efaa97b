"""A line in the colours of a theme, for a terminal on which nothing is drawn yet."""

from __future__ import annotations

from collections.abc import Mapping

from rich.color import Color, ColorSystem
from rich.style import Style
from textual.theme import Theme

from .themes import ALL_THEMES, terminal_colours


def sample(name: str, environ: Mapping[str, str]) -> str:
    """Return a sample of the theme that a person calls `name`; "" where the terminal cannot show its colours, or where
    they are the terminal's own."""
    colours = terminal_colours(environ)
    theme = next((each for each in ALL_THEMES if each.name == colours.themes.get(name)), None)
    if colours.few or theme is None or theme.ansi:
        return ""
    return "".join(_styled(text, colour, theme, environ) for text, colour in _parts(theme))


def _parts(theme: Theme) -> list[tuple[str, str | None]]:
    return [
        ("  Fix the test ", theme.foreground),
        (" accent ", theme.accent),
        (" + added ", theme.success),
        (" - removed ", theme.error),
        (" question ", theme.warning),
    ]


def _styled(text: str, colour: str | None, theme: Theme, environ: Mapping[str, str]) -> str:
    whole = environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")
    style = Style(color=Color.parse(colour or "default"), bgcolor=Color.parse(theme.background or "default"))
    return style.render(text, color_system=ColorSystem.TRUECOLOR if whole else ColorSystem.EIGHT_BIT)
