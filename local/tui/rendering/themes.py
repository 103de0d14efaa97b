"""Themes, the palette of each, and the store of the person's choice.

A theme of one's own is a file `themes/NAME.json` beside the settings, with colours by their names:
`{"dark": true, "accent": "#ff9f43", "background": "#101010"}`. What it leaves out is as in the dark or light theme.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.theme import Theme
from textual.color import Color, ColorParseError
from textual.filter import LineFilter
from textual.theme import BUILTIN_THEMES
from textual.theme import Theme as TextualTheme

from ccb.tunnel.wire.dataclass import dataclass

from ...config.log import state_dir
from ...config.settings import config_dir

if TYPE_CHECKING:
    from textual.app import App

_GROUND_SHARE_DARK, _GROUND_SHARE_LIGHT = 0.18, 0.15
"""The part of the colour in the ground of a changed line: code must stay readable on it."""


@dataclass(frozen=True)
class Palette:
    """Rich styles by their purpose. `added` and `removed` are the grounds of changed lines, "" in few colours."""

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
    ground, share = Color.parse(colours["background"]), _GROUND_SHARE_DARK if dark else _GROUND_SHARE_LIGHT
    added, removed = (
        "" if ansi else ground.blend(Color.parse(colours[name]), share).hex for name in ("success", "error")
    )
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


def palette_in(app: App[Any]) -> Palette:
    return palette_of(app.theme_variables, dark=app.current_theme.dark)


def sample(name: str, environ: Mapping[str, str]) -> str:
    """Return a sample of a theme, "" where the terminal cannot show its colours, or they are the terminal's own."""
    colours = terminal_colours(environ)
    theme = next((each for each in ALL_THEMES if each.name == colours.themes.get(name)), None)
    if colours.few or theme is None or theme.ansi:
        return ""
    parts = {
        "  Fix the test ": theme.foreground,
        " accent ": theme.accent,
        " + added ": theme.success,
        " - removed ": theme.error,
        " question ": theme.warning,
    }
    whole = environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")
    system, ground = ColorSystem.TRUECOLOR if whole else ColorSystem.EIGHT_BIT, theme.background or "default"
    styles = {text: Style(color=colour or "default", bgcolor=ground) for text, colour in parts.items()}
    return "".join(style.render(text, color_system=system) for text, style in styles.items())


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
        if not Path(environ.get("HOME", "")).is_absolute():
            return None
        return ThemeStore(state_dir(environ) / "theme", config_dir(environ) / "themes")

    def load(self) -> str:
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
        try:
            found = sorted(each.stem for each in self._own.iterdir() if each.suffix == ".json")
        except OSError:
            return []
        return [name for name in found if _NAME.fullmatch(name)]

    def read(self, name: str) -> TextualTheme | None:
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
            if key not in _COLOURS:
                raise ThemeRefused(f"{path}: {key}: a theme has the colours {', '.join(_COLOURS)}")
            if not _is_colour(value):
                raise ThemeRefused(f"{path}: {key}: {value!r} is no colour")
        return replace(DARK if dark is not False else LIGHT, name=f"ccb-own-{name}", **fields)


def _is_colour(value: object) -> bool:
    try:
        return isinstance(value, str) and Color.parse(value).ansi is None
    except ColorParseError:
        return False


def _theme(
    name: str, colours: str, bars: tuple[str, str], selected: tuple[str, str], *, dark: bool = True
) -> TextualTheme:
    """Return a theme with the `colours` accent, success, warning, error, foreground, background, surface and panel.
    `bars` are those of a blurred border and of a scroll bar, `selected` ground and text of what is selected."""
    named: dict[str, Any] = dict(zip(_COLOURS[1:], colours.split(), strict=True))
    marked = dict(zip(("background", "foreground"), selected, strict=True))
    variables = {
        "border-blurred": bars[0],
        "border": named["accent"],
        "scrollbar": bars[1],
        "scrollbar-background": named["background"],
        **{f"screen-selection-{each}": value for each, value in marked.items()},
        **{f"input-selection-{each}": value for each, value in marked.items()},
    }
    return TextualTheme(name, primary=named["accent"], dark=dark, variables=variables, **named)


_SELECTED_DARK, _SELECTED_LIGHT = ("#2b4a6f", "#ffffff"), ("#b6d4fb", "#101418")
DARK = _theme(
    "ccb-dark",
    "#6cb6ff #57c26b #dca43b #ff7b72 #d7dce2 #14171c #1d2128 #262b33",
    ("#3a414c", "#39414d"),
    _SELECTED_DARK,
)
LIGHT = _theme(
    "ccb-light",
    "#0550ae #116329 #8a5a00 #b3202c #1f2328 #fbfbfa #eeeeec #e4e4e1",
    ("#c3c6ca", "#c3c6ca"),
    _SELECTED_LIGHT,
    dark=False,
)
HIGH_CONTRAST = _theme(
    "ccb-high-contrast",
    "#7ee0ff #6dff8b #ffe14d #ff9d96 #ffffff #000000 #101010 #1c1c1c",
    ("#c0c0c0", "#39414d"),
    _SELECTED_DARK,
)
HIGH_CONTRAST_LIGHT = _theme(
    "ccb-high-contrast-light",
    "#00307a #004d12 #5a3600 #7a0010 #000000 #ffffff #f2f2f2 #e6e6e6",
    ("#404040", "#c3c6ca"),
    _SELECTED_LIGHT,
    dark=False,
)


def _ansi(name: str, accent: str, warning: str, *, dark: bool) -> TextualTheme:
    marked = {"background": "ansi_default", "foreground": "ansi_default", "text-style": "reverse"}
    return TextualTheme(
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


_READABLE = 4.5  # contrast of text by WCAG
_SURFACES, _PANEL, _LINE = (0.05, 0.03), 0.1, 0.2
"""The parts of the foreground in what is painted on the terminal's own ground; of surfaces the first one that fits."""


def on_ground(theme: TextualTheme, ground: Color) -> TextualTheme | None:
    """Return the theme on another ground; None if its colours are the terminal's, or could not be read there."""
    if theme.ansi or theme.foreground is None:
        return None
    text = Color.parse(theme.foreground)
    named = (theme.foreground, theme.accent, theme.success, theme.warning, theme.error)
    colours = [Color.parse(each) for each in (*named, muted(theme.foreground, ground.hex)) if each]
    for surface in (ground.blend(text, share) for share in _SURFACES):
        if all(_contrast(each, under) >= _READABLE for each in colours for under in (ground, surface)):
            line, panel = (ground.blend(text, share).hex for share in (_LINE, _PANEL))
            bars = {"border-blurred": line, "scrollbar": line, "scrollbar-background": ground.hex}
            variables = {**theme.variables, **bars}
            own = replace(theme, name="ccb-auto", background=ground.hex, variables=variables)
            return replace(own, surface=surface.hex, panel=panel)
    return None


def _contrast(one: Color, other: Color) -> float:
    """Return the contrast of two colours by WCAG."""

    def luminance(colour: Color) -> float:
        parts = (part / 255 for part in colour.rgb)
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


_BARE = Style(bgcolor="default")


class BareGround(LineFilter):
    """Leaves cells with the ground of the theme to the terminal, which may be transparent or have a picture there."""

    def __init__(self) -> None:
        super().__init__(enabled=False)
        self._ground: tuple[int, ...] = ()

    def leave_out(self, ground: str | None) -> None:
        """Leave this colour out; None paints all."""
        self.enabled, self._ground = ground is not None, Color.parse(ground or "black").rgb

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [self._bare(each) for each in segments]

    def _bare(self, segment: Segment) -> Segment:
        text, style, control = segment
        ground = style.bgcolor.triplet if style is not None and style.bgcolor is not None else None
        return Segment(text, style + _BARE, control) if style is not None and ground == self._ground else segment


ANSI_DARK = _ansi("ccb-ansi-dark", "ansi_cyan", "ansi_yellow", dark=True)
ANSI_LIGHT = _ansi("ccb-ansi-light", "ansi_blue", "ansi_magenta", dark=False)
ALL_THEMES = (DARK, LIGHT, ANSI_DARK, ANSI_LIGHT, HIGH_CONTRAST, HIGH_CONTRAST_LIGHT)
THEME_NAMES = ("dark", "light", "high-contrast", "high-contrast-light", "ansi")
"""What a person may choose, besides `auto` and their own themes."""


@dataclass(frozen=True)
class TerminalColours:
    """`few`: the terminal shows at most 16, or the person wants none. `light` is None if that is not known."""

    few: bool = False
    light: bool | None = None

    @property
    def themes(self) -> Mapping[str, str]:
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
    """Return what COLORTERM, TERM, NO_COLOR and COLORFGBG ("15;0": white on black) say."""
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
