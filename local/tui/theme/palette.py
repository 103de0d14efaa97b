"""The colours and text styles that everything on the screen is drawn with, taken from the theme."""

from __future__ import annotations

from collections.abc import Mapping

from rich.theme import Theme
from textual.color import Color

from ccb.tunnel.wire.dataclass import dataclass

from .themes import muted

_GROUND_SHARE_DARK, _GROUND_SHARE_LIGHT = 0.18, 0.15
"""The part of the colour in the ground of a changed line: code must stay readable on it."""


@dataclass(frozen=True)
class Palette:
    """Rich styles by their purpose; `markdown` holds those of Markdown elements. `code` is the theme of code. `added`
    and `removed` are the grounds of changed lines, "" in terminals of few colours."""

    accent: str
    dim: str
    good: str
    bad: str
    warn: str
    surface: str
    added: str
    removed: str
    code: str
    markdown: Theme


def palette_of(colours: Mapping[str, str], *, dark: bool) -> Palette:
    """Return the palette of a theme, given the theme's CSS variables."""
    ansi = Color.parse(colours["foreground"]).ansi is not None
    dim = muted(colours["foreground"], colours["background"])
    accent, surface, good, bad, warn = (
        colours[name].removeprefix("ansi_").replace("transparent", "default")
        for name in ("accent", "surface", "success", "error", "warning")
    )
    code = ("ansi_dark" if dark else "ansi_light") if ansi else ("github-dark" if dark else "friendly")
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
    added, removed = ("" if ansi else _ground(colours, name, dark=dark) for name in ("success", "error"))
    return Palette(
        accent,
        dim,
        good,
        f"bold {bad}" if ansi else bad,  # without colours it must still stand out
        f"bold {warn}" if ansi else warn,
        surface,
        added,
        removed,
        code,
        Theme(markdown, inherit=True),
    )


def _ground(colours: Mapping[str, str], name: str, *, dark: bool) -> str:
    """Return a colour of the theme as the ground of text: mostly that of the screen."""
    share = _GROUND_SHARE_DARK if dark else _GROUND_SHARE_LIGHT
    return Color.parse(colours["background"]).blend(Color.parse(colours[name]), share).hex
