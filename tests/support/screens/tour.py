"""`make tour`: pictures of the REPL in docs/tour, and the page that shows them, docs/guide/tour.md.

The scenes are those that tests keep as text. Nothing in a picture depends on the time or on where it is made.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.text import Text
from tests.support.screens import panels, scenes
from tests.support.screens.scenes import Scene, scene

DOCS = Path(__file__).resolve().parents[3] / "docs"
PICTURES, PAGE = DOCS / "tour", DOCS / "guide" / "tour.md"
SIZE = (100, 30)
_TITLE = "ccb ssh devbox:/srv/shop"
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_IDENTITY = re.compile(r"terminal-\d+")


@dataclass(frozen=True)
class Stop:
    """One picture of the tour: its file, its scene (or the lines that it prints), a heading, and what the person sees
    on it."""

    name: str
    play: Scene | Callable[[], str]
    heading: str
    text: str
    theme: str = "dark"


TOUR = (
    Stop(
        "set-up",
        scenes.set_up,
        "The first run",
        "Two short steps, once: Enter skips one. The session asks for the key, if none is known.",
    ),
    Stop("first", scenes.first, "The first screen", "The composer is there at once; the line below it names the host."),
    Stop(
        "streaming",
        scenes.streaming,
        "An answer that grows",
        "Finished calls take one line each. The status line says what ccb waits for. Keys stay quick meanwhile.",
    ),
    Stop(
        "working",
        scenes.working,
        "A change and a running command",
        "An edit shows its diff; a running command shows its time and its last lines. Ctrl+O shows all of everything.",
    ),
    Stop(
        "image",
        scenes.image,
        "An image of the host",
        "Each character shows two pixels, in any terminal with colours; `/open` shows the file itself.",
    ),
    Stop(
        "approval",
        scenes.approval,
        "An approval",
        "The card names the host and shows the whole change. Tab marks yes, and Enter gives it.",
    ),
    Stop(
        "next-approval",
        scenes.next_approval,
        "The next approval",
        "While questions follow each other, the focus stays on their cards with yes marked: Enter alone allows each. "
        "Text that you type goes to the input, and answers nothing.",
    ),
    Stop(
        "agents",
        scenes.agents,
        "Sub-agents",
        "Each has rows of its own, with what it does now and what it has used. Down and Enter open its conversation.",
    ),
    Stop(
        "tasks",
        panels.tasks,
        "What runs beside the agent",
        "`/tasks` shows commands and sub-agents with their last line, and the output of the marked one as it comes.",
    ),
    Stop(
        "reconnecting",
        scenes.reconnecting,
        "The connection is lost",
        "The agent works on. ccb says why the connection is gone and when it tries again; `r` tries now.",
    ),
    Stop(
        "rewind",
        scenes.rewind,
        "Back to an earlier prompt",
        "Esc twice: conversation or files go back, or a part is summed up.",
    ),
    Stop("sessions", scenes.sessions, "Other sessions of the host", "`/resume` lists them all, narrowed as you type."),
    Stop("light", scenes.answered, "The light theme", "The terminal's background decides; `/theme` chooses.", "light"),
)


def page() -> str:
    parts = [
        "# A tour of the REPL",
        "Each picture is a screen of the program with a scripted session. `make tour` draws them. [The REPL](repl.md) "
        "tells more of each.",
    ]
    for stop in TOUR:
        parts += [f"## {stop.heading}", stop.text, f"![{stop.heading}](../tour/{stop.name}.svg)"]
    return "\n\n".join(part if part[0] in "#!" else textwrap.fill(part, 118) for part in parts) + "\n"


async def draw(stop: Stop) -> str:
    if stop.play is scenes.set_up:
        svg = _printed(scenes.set_up())
    else:
        async with scene(cast(Scene, stop.play), SIZE, stop.theme) as at:
            svg = at.app.export_screenshot(title=_TITLE, simplify=True)
    svg = _with_local_fonts(svg)
    return _IDENTITY.sub(f"terminal-{stop.name}", svg)


def _with_local_fonts(svg: str) -> str:
    """Use fonts of the viewer's machine: a page that shows the picture as an image loads none from elsewhere."""
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("font-family: Fira Code, monospace", f"font-family: {_FONTS}").replace("arial", "sans-serif")


def _printed(text: str) -> str:
    """Return a picture of what a program has printed on a terminal."""
    console = Console(record=True, width=120, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text))
    return console.export_svg(title=_TITLE)


async def renew() -> None:
    """Draw all pictures and write the page. Remove pictures that are no longer wanted."""
    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.iterdir():
        old.unlink()
    for stop in TOUR:
        (PICTURES / f"{stop.name}.svg").write_text(await draw(stop), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(renew())
    sys.exit(0)
