"""Lists above the composer: what they have in common, the hosts, and the help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line

from ...commands.session_table import age_text
from ...slash_commands.this_laptop import RecentHost
from ...terminal.keymap import DEFAULT_KEYMAP, Keymap
from ..rendering.themes import Palette, palette_of
from ..widgets.painting import CARET

_STEPS = {"up": -1, "down": 1}
_LETTERS = {"k": -1, "j": 1}


class PanelClosed(Message):
    """The person has read enough of a panel or a page."""


def typed(text: str, event: events.Key) -> str:
    """Return a line of text after a key in it."""
    if event.key == "backspace":
        return text[:-1]
    if event.key == "ctrl+u":
        return ""
    return text + event.character if event.character and event.is_printable else text


class ListPanel(Static, can_focus=True):
    """A list with one marked row. The keys of `keymap` act on that."""

    DEFAULT_CSS = """
    ListPanel { height: auto; border: round $accent; padding: 0 1; background: $background; }
    """
    MAX_ROWS: ClassVar[int] = 10
    LETTERS: ClassVar[bool] = True
    """Whether the letters k and j move the mark. They do not where letters search."""

    keymap: Keymap = DEFAULT_KEYMAP

    def __init__(self) -> None:
        super().__init__()
        self._at = 0  # the index of the marked row

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self._pressed(event)
        self._draw()

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self._pasted(one_line(event.text))
        self._draw()

    def _pressed(self, event: events.Key) -> None:
        raise NotImplementedError

    def _pasted(self, text: str) -> None:
        """Take a line of text that was pasted."""

    def _draw(self) -> None:
        raise NotImplementedError

    def _step(self, key: str, rows: int) -> int:
        """Move the mark in a list of so many rows. Return by how many rows the key moves it, 0 for other keys."""
        steps = {**_STEPS, "pageup": -self.MAX_ROWS, "pagedown": self.MAX_ROWS, **(_LETTERS if self.LETTERS else {})}
        self._at = min(max(self._at + steps.get(key, 0), 0), max(0, rows - 1))
        return steps.get(key, 0)

    def _window(self, rows: int, room: int) -> range:
        """Return the indexes of the rows to show where there is room for `room` of them."""
        first = min(max(0, self._at - room // 2), max(0, rows - room))
        return range(first, min(first + room, rows))

    def _room(self, frame: int) -> int:
        """Return how many rows are shown on a screen that needs `frame` lines for other things."""
        return max(3, min(self.MAX_ROWS, self.app.size.height - frame))

    @property
    def _palette(self) -> Palette:
        return palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)

    def _row(self, *, marked: bool) -> Text:
        """Return the beginning of a row."""
        row = Text(no_wrap=True, overflow="ellipsis")
        return row.append("› " if marked else "  ", style=f"bold {self._palette.accent}")


_FRAME_LINES = 11
_KEYS = "Enter: sessions of this host, the command for another · Esc closes"


class HostPanel(ListPanel):
    """Lists `hosts`, the one on the screen first. `choose` is called with what the person chooses."""

    def __init__(self, hosts: Sequence[RecentHost], choose: Callable[[RecentHost], object]) -> None:
        super().__init__()
        self._choose = choose
        self._hosts = hosts

    def _pressed(self, event: events.Key) -> None:
        if event.key in ("escape", "q"):
            self.post_message(PanelClosed())
        elif event.key == "enter":
            self._choose(self._hosts[self._at])
        else:
            self._step(event.key, len(self._hosts))

    def _draw(self) -> None:
        palette = self._palette
        lines = [Text("Hosts of your last sessions", style="bold")]
        for number in self._window(len(self._hosts), self._room(_FRAME_LINES)):
            each, marked = self._hosts[number], number == self._at
            line = self._row(marked=marked)
            used = "now" if each.here else age_text(each.ago_s) if each.ago_s is not None else ""
            line.append(f"{used:>5}  ", style=palette.dim)
            place = f"{one_line(each.host)}:{one_line(each.directory)}"
            line.append(place, style="bold" if marked else "")
            state = f"here, {each.state}" if each.here else each.state
            line.append(f"  {state}", style=palette.good if each.state else palette.dim)
            lines.append(line)
        if len(self._hosts) == 1:
            lines.append(Text("  No other host: sessions leave their trace with their first answer.", palette.dim))
        self.update(Group(*lines, Text(_KEYS, style=palette.dim)))


HelpRow = tuple[str, str]
"""A name, such as that of a key or a command, and what is said of it, in one or more lines."""

_KEY_CELLS = 32


class HelpPanel(VerticalScroll, can_focus=True):
    """Lists `sections`: a heading with its rows. `title` stands above them. Escape and Enter close it.
    `sought` is what it is narrowed to at first."""

    DEFAULT_CSS = """
    HelpPanel {
        height: auto; max-height: 60vh; border: round $accent; padding: 0 1; background: $background;
    }
    HelpPanel Static { height: auto; }
    """

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
            self.post_message(PanelClosed())
        elif event.key in _STEPS:
            self.scroll_relative(y=_STEPS[event.key], animate=False)
        elif (sought := typed(self._sought, event)) != self._sought:
            self._sought = sought
            self._draw()
            self.scroll_home(animate=False)

    def _draw(self) -> None:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        title = one_line(self._title)
        self.border_title = f"{title}: {one_line(self._sought)}{CARET}" if self._sought else f"{title}: type to search"
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
