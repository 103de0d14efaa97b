"""The panel that lists the sessions of the host, narrowed by what the person types."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line

from ...commands.session_table import age_text, cut
from ...connect.session_list import SessionRow
from ..theme.palette import Palette, palette_of

_ROWS = 10
_STATES = {"running": "working", "requires_action": "asks you", "idle": "idle", "ended": "ended"}
_NUMBER_CELLS, _STATE_CELLS, _MIN_PATH_CELLS = 5, 9, 60
_FRAME_CELLS = 6


class SessionPanel(Static, can_focus=True):
    """`current` is the session on the screen of those on `host`: it is marked and cannot be chosen."""

    DEFAULT_CSS = """
    SessionPanel {
        height: auto; max-height: 20; border: round $accent; padding: 0 1; background: $background;
    }
    """

    class SessionChosen(Message):
        """The person wants this session on the screen."""

        def __init__(self, row: SessionRow) -> None:
            super().__init__()
            self.row = row

    class ListClosed(Message):
        """The person stays where they are."""

    def __init__(self, host: str, rows: Sequence[SessionRow], current: str, sought: str = "") -> None:
        super().__init__()
        self._host = host
        self._rows = rows
        self._current = current
        self._sought = sought
        self._at = 1 if not sought and len(rows) > 1 and rows[0].session == current else 0

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    @property
    def _found(self) -> list[SessionRow]:
        words = self._sought.lower().split()
        return [row for row in self._rows if all(word in _searched(row) for word in words)]

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        found = self._found
        step = {"up": -1, "down": 1, "pageup": -_ROWS, "pagedown": _ROWS}.get(event.key, 0)
        if event.key == "escape":
            self.post_message(self.ListClosed())
        elif event.key == "enter":
            row = found[self._at] if found else None
            if row is not None and row.session != self._current:
                self.post_message(self.SessionChosen(row))
        elif step:
            self._at = min(max(self._at + step, 0), max(0, len(found) - 1))
        elif event.key == "backspace":
            self._search(self._sought[:-1])
        elif event.character and event.is_printable:
            self._search(self._sought + event.character)
        self._draw()

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self._search(self._sought + one_line(event.text))
        self._draw()

    def _search(self, text: str) -> None:
        self._sought, self._at = text, 0

    def _draw(self) -> None:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        found, width = self._found, max(20, self.size.width or self.app.size.width - _FRAME_CELLS)
        text = Text(f"Sessions on {one_line(self._host)}", style="bold", no_wrap=True, overflow="ellipsis")
        text.append(f"   {one_line(self._sought)}▏\n", style=f"not bold {palette.accent}")
        first = min(max(0, self._at - _ROWS // 2), max(0, len(found) - _ROWS))
        for place, row in enumerate(found[first : first + _ROWS], first):
            text.append_text(self._line(row, width, palette, marked=place == self._at))
        if not found:
            text.append("  No session fits what you typed.\n", style=f"not bold {palette.dim}")
        count = f"{len(found)} of {len(self._rows)}" if self._sought else str(len(self._rows))
        keys = f"{count} sessions · type to search · Up, Down choose · Enter opens · Esc stays here"
        self.update(text.append(keys, style=f"not bold {palette.dim}"))

    def _line(self, row: SessionRow, width: int, palette: Palette, *, marked: bool) -> Text:
        here = row.session == self._current
        state = "here" if here else _STATES.get(row.state, one_line(row.state))
        line = Text("› " if marked else "  ", style=f"bold {palette.accent}")
        used, state = age_text(row.idle_s), cut(state, _STATE_CELLS)
        line.append(f"{used:>{_NUMBER_CELLS}}  {state:<{_STATE_CELLS}}  ", style=f"not bold {palette.dim}")
        path = cut(one_line(row.cwd), width // 3) if width >= _MIN_PATH_CELLS else ""
        room = width - _NUMBER_CELLS - _STATE_CELLS - 6 - (cell_len(path) + 2 if path else 0)
        prompt = cut(one_line(row.prompt) or "(no prompt yet)", max(8, room))
        line.append(prompt, style="bold" if marked else "not bold")
        if path:
            line.append(" " * max(2, room - cell_len(prompt) + 2) + path, style=f"not bold {palette.dim}")
        return line.append("\n")


def _searched(row: SessionRow) -> str:
    return f"{row.session} {row.cwd} {row.prompt} {row.state}".lower()
