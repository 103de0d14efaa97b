"""A panel of rows above the composer, narrowed by what the person types: /help and other lists."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line

from ..theme.palette import palette_of

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
