"""Help, hosts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.dataclass import dataclass

from ...commands.session_table import age_text
from ..rendering.themes import palette_of

_MAX_ROWS, _FRAME_LINES = 10, 11
_KEYS = "Enter: sessions of this host, the command for another · Esc closes"


@dataclass(frozen=True)
class RecentHost:
    """A host and a directory. `ago_s`: seconds since the last model call there. `state` is what is known of the
    connection, "" for none. `here`: it is the one on the screen."""

    host: str
    directory: str
    ago_s: float | None = None
    state: str = ""
    here: bool = False

    @property
    def command(self) -> str:
        """The command that opens a session there."""
        if self.host == "local":
            return f"ccb --local {shlex.quote(self.directory)}"
        return f"ccb ssh {shlex.quote(f'{self.host}:{self.directory}')}"


class HostPanel(Static, can_focus=True):
    """Lists `hosts`, the one on the screen first. `choose` is called with what the person chooses."""

    DEFAULT_CSS = """
    HostPanel { height: auto; border: round $accent; padding: 0 1; background: $background; }
    """

    class HostsClosed(Message):
        """The person has seen enough."""

    def __init__(self, hosts: Sequence[RecentHost], choose: Callable[[RecentHost], object]) -> None:
        super().__init__()
        self._choose = choose
        self._hosts = hosts
        self._at = 0

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        step = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -_MAX_ROWS, "pagedown": _MAX_ROWS}.get(event.key, 0)
        if event.key in ("escape", "q"):
            self.post_message(self.HostsClosed())
        elif event.key == "enter":
            self._choose(self._hosts[self._at])
            return
        self._at = min(max(self._at + step, 0), len(self._hosts) - 1)
        self._draw()

    def _draw(self) -> None:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        rows = max(3, min(_MAX_ROWS, self.app.size.height - _FRAME_LINES))
        first = min(max(0, self._at - rows // 2), max(0, len(self._hosts) - rows))
        lines = [Text("Hosts of your last sessions", style="bold")]
        for number, each in enumerate(self._hosts[first : first + rows], first):
            marked = number == self._at
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append("› " if marked else "  ", style=f"bold {palette.accent}")
            used = "now" if each.here else age_text(each.ago_s) if each.ago_s is not None else ""
            line.append(f"{used:>5}  ", style=palette.dim)
            line.append(f"{one_line(each.host)}:{one_line(each.directory)}", style="bold" if marked else "")
            state = f"here, {each.state}" if each.here else each.state
            line.append(f"  {state}", style=palette.good if each.state else palette.dim)
            lines.append(line)
        if len(self._hosts) == 1:
            lines.append(Text("  No other host: sessions leave their trace with their first answer.", palette.dim))
        self.update(Group(*lines, Text(_KEYS, style=palette.dim)))


HelpRow = tuple[str, str]
"""A name, such as that of a key or a command, and what is said of it, in one or more lines."""

_KEY_CELLS = 32
_SCROLLS = {"up": -1, "down": 1}


class HelpPanel(VerticalScroll, can_focus=True):
    """Lists `sections`: a heading with its rows. `title` stands above them. Escape and Enter close it.
    `sought` is what it is narrowed to at first."""

    DEFAULT_CSS = """
    HelpPanel {
        height: auto; max-height: 60vh; border: round $accent; padding: 0 1; background: $background;
    }
    HelpPanel Static { height: auto; }
    """

    class HelpClosed(Message):
        """The person has read enough."""

    def __init__(
        self, sections: Sequence[tuple[str, Sequence[HelpRow]]], title: str = "Help", sought: str = ""
    ) -> None:
        super().__init__()
        self._title = title
        self._sections = sections
        self._sought = sought
        self._page = Static()

    def compose(self) -> ComposeResult:
        yield self._page

    def on_mount(self) -> None:
        self._draw()

    def show(self, sections: Sequence[tuple[str, Sequence[HelpRow]]], title: str) -> None:
        """Show other rows."""
        self._sections, self._title = sections, title
        if self.is_mounted:
            self._draw()

    def turn(self, direction: int) -> None:
        """Scroll by a page."""
        if direction < 0:
            self.scroll_page_up(animate=False)
        else:
            self.scroll_page_down(animate=False)

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key in ("escape", "enter"):
            self.post_message(self.HelpClosed())
        elif event.key in _SCROLLS:
            self.scroll_relative(y=_SCROLLS[event.key], animate=False)
        elif event.key == "backspace":
            self._search(self._sought[:-1])
        elif event.character and event.is_printable:
            self._search(self._sought + event.character)

    def _search(self, text: str) -> None:
        self._sought = text
        self._draw()
        self.scroll_home(animate=False)

    def _draw(self) -> None:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        title = one_line(self._title)
        self.border_title = f"{title}: {one_line(self._sought)}▏" if self._sought else f"{title}: type to search"
        self.border_subtitle = "Up, Down, PgUp, PgDn scroll · Esc closes"
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(max_width=_KEY_CELLS, style=palette.accent)
        table.add_column(ratio=1)
        words, found = self._sought.lower().split(), False
        for title, rows in self._sections:
            fitting = [row for row in rows if all(word in f"{row[0]} {row[1]}".lower() for word in words)]
            if fitting:
                table.add_row(Text(title, style="bold"), "")
            for name, does in fitting:
                table.add_row(Text(one_line(name)), Text("\n".join(map(one_line, does.splitlines())), overflow="fold"))
            found = found or bool(fitting)
        self._page.update(table if found else Text("Nothing fits what you typed.", palette.dim))
