"""The colours and text styles that everything on the screen is drawn with, taken from the theme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.theme import Theme

from .themes import muted


@dataclass(frozen=True)
class Palette:
    """Rich styles by their purpose; `markdown` holds those of Markdown elements. `dark`: the background is dark."""

    accent: str
    dim: str
    good: str
    bad: str
    warn: str
    surface: str
    dark: bool
    markdown: Theme


def palette_of(colours: Mapping[str, str], *, dark: bool) -> Palette:
    """Return the palette of a theme, given the theme's CSS variables."""
    dim = muted(colours["foreground"], colours["background"])
    accent, surface = colours["accent"], colours["surface"]
    markdown = {
        "markdown.code": f"{accent} on {surface}",
        "markdown.block_quote": f"italic {dim}",
        "markdown.list": "none",
        "markdown.item.bullet": f"bold {accent}",
        "markdown.item.number": f"bold {accent}",
        "markdown.hr": dim,
        "markdown.h1": f"bold underline {accent}",
        "markdown.h2": f"bold {accent}",
        "markdown.h3": "bold",
        "markdown.h4": "bold italic",
        "markdown.h5": "italic",
        "markdown.h6": f"italic {dim}",
        "markdown.link": f"underline {accent}",
        "markdown.link_url": f"underline {accent}",
        "markdown.table.border": dim,
        "markdown.table.header": "bold",
    }
    return Palette(
        accent,
        dim,
        colours["success"],
        colours["error"],
        colours["warning"],
        surface,
        dark,
        Theme(markdown, inherit=True),
    )
