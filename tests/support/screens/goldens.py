"""Screens as text with their colours: `make goldens` writes tests/local/tui/goldens anew; look at the difference.

Under a line, `~` names the colours of its characters and `#` their grounds by their purpose in the theme, a capital
for bold: `a` accent, `d` dim, `g` good, `r` bad, `w` warning, `s` surface, `+` and `-` changed lines, `o` any other;
`.` is the foreground, or no ground.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from tests.support.repl.pilot import Desk
from tests.support.screens import panels, scenes
from tests.support.screens.scenes import Scene, scene
from textual.color import Color

from ccb.local.tui.rendering.block_renderer import SPINNER
from ccb.local.tui.rendering.themes import palette_in

DIRECTORY = Path(__file__).resolve().parents[2] / "local" / "tui" / "goldens"
NORMAL, NARROW, WIDE, TINY = (100, 30), (80, 24), (240, 70), (40, 16)
PANELS: tuple[Scene, ...] = (
    panels.sessions,
    panels.changes,
    panels.rules,
    panels.conversation,
    panels.tools,
    panels.hosts,
    panels.settings,
    panels.tasks,
    panels.agent,
    panels.models,
    panels.ports,
)
GOLDENS: tuple[tuple[Scene, tuple[int, int], str], ...] = (
    (scenes.first, NORMAL, "dark"),
    (scenes.first, TINY, "dark"),
    (scenes.working, NORMAL, "dark"),
    (scenes.answered, NORMAL, "dark"),
    (scenes.answered, NORMAL, "light"),
    (scenes.image, NARROW, "dark"),
    (scenes.approval, NARROW, "dark"),
    (scenes.approval, WIDE, "dark"),
    (scenes.approval, TINY, "dark"),
    (scenes.approval, NORMAL, "light"),
    (scenes.approvals, NARROW, "dark"),
    (scenes.plan, NARROW, "dark"),
    (scenes.reverse_port, NARROW, "dark"),
    (scenes.todos, NARROW, "light"),
    (scenes.agents, NARROW, "dark"),
    (scenes.reconnecting, NARROW, "light"),
    (scenes.failed, NARROW, "dark"),
    (scenes.help_panel, NARROW, "light"),
    (scenes.dash, NORMAL, "dark"),
    (scenes.dash, WIDE, "light"),
    (scenes.dash, TINY, "dark"),
    *((panel, NARROW, "light") for panel in PANELS),
    *((panel, TINY, "dark") for panel in PANELS),
)


def name_of(play: Scene, size: tuple[int, int], theme: str) -> str:
    return f"{getattr(play, '__name__', 'scene')}-{theme}-{size[0]}x{size[1]}.txt"


def cells(at: Desk) -> Iterator[list[tuple[str, Style]]]:
    """Yield the characters of each line of the screen with their styles."""
    for strip in at.app.screen._compositor.render_strips():
        yield [(char, style or Style()) for text, style, _ in map(_parts, strip) for char in text]


def _parts(segment: Segment) -> Segment:
    return Segment(re.sub(f"[{SPINNER}]", SPINNER[0], segment.text), segment.style)


def picture(at: Desk) -> str:
    purposes, grounds = _purposes(at)
    lines = []
    for line in cells(at):
        lines.append("".join(char for char, _ in line).rstrip())
        colours = "".join("." if char == " " else _letter(style, purposes) for char, style in line)
        behind = "".join(_ground(style, grounds) for _, style in line)
        lines += [f"{mark} {each}" for mark, each in (("~", _shortened(colours)), ("#", _shortened(behind))) if each]
    return "\n".join(lines) + "\n"


def _purposes(at: Desk) -> tuple[dict[str, str], dict[str, str]]:
    palette, theme = palette_in(at.app), at.app.current_theme
    purposes = {"foreground": ".", "default": "."}
    named = ((theme.foreground, "."), (palette.accent, "a"), (palette.dim, "d"), (palette.good, "g"),
             (palette.bad, "r"), (palette.warn, "w"))  # fmt: skip
    for colour, letter in reversed(named):
        purposes[_hex(colour)] = letter
    grounds = {_hex(theme.background): ".", _hex(palette.surface): "s"}
    grounds |= {_hex(palette.added): "+", _hex(palette.removed): "-"}
    return purposes, grounds


def _hex(colour: str | None) -> str:
    return Color.parse(colour).hex.lower() if colour else ""


def _letter(style: Style, purposes: dict[str, str]) -> str:
    letter = purposes.get(hex_of(style.color), "o") if style.color is not None else "."
    if style.bold:
        return "B" if letter == "." else letter.upper()
    return letter


def _ground(style: Style, grounds: dict[str, str]) -> str:
    return grounds.get(hex_of(style.bgcolor), "o") if style.bgcolor is not None else "."


def hex_of(colour: RichColor | None) -> str:
    """A colour as `#rrggbb`, "" for none."""
    return colour.get_truecolor().hex.lower() if colour is not None else ""


def _shortened(letters: str) -> str:
    """Write runs as `12a`, and nothing for a line without a colour."""
    if not letters.strip("."):
        return ""
    runs = (match for match in re.finditer(r"(.)\1*", letters.rstrip(".")))
    return " ".join(f"{len(run[0])}{run[1]}" for run in runs)


async def renew() -> None:
    """Write all goldens, and remove those that are no longer wanted."""
    DIRECTORY.mkdir(exist_ok=True)
    wanted = {name_of(*each) for each in GOLDENS}
    for old in DIRECTORY.iterdir():
        if old.name not in wanted:
            old.unlink()
    for play, size, theme in GOLDENS:
        async with scene(play, size, theme) as at:
            (DIRECTORY / name_of(play, size, theme)).write_text(picture(at), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(renew())
    sys.exit(0)
