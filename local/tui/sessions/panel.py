"""The panel that lists the sessions of a host: narrowed by typing, with a preview, to open, name and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from rich.console import Group
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import HostText, one_line

from ...connect.session_list import SessionRow
from ...terminal.keymap import DEFAULT_KEYMAP, Keymap
from ..painting.screen import CARET
from ..theme.palette import palette_of
from .session_lines import Columns, PreviewLines, question_lines

_FRAME_LINES = 10
"""Lines of the screen that the list and the preview leave to the frame, the composer and the conversation."""
_WIDE = 110  # cells from which the preview stands beside the list
_FRAME_CELLS = 6
_LEAST_ROWS, _MAX_ROWS = 3, 10
_KEYS = "Enter opens · {session-rename!} renames · {session-delete!} deletes · Esc %s · type to search"


class _Does(Enum):
    CHOOSES = "chooses"
    RENAMES = "renames"
    DELETES = "deletes"


class SessionPanel(Static, can_focus=True):
    """`current` is the session on the screen of those on `host`: it is marked and cannot be chosen. `leaves` says what
    Esc does."""

    DEFAULT_CSS = """
    SessionPanel {
        height: auto; border: round $accent; padding: 0 1; background: $background;
    }
    """

    class SessionChosen(Message):
        """The person wants this session on the screen."""

        def __init__(self, row: SessionRow) -> None:
            super().__init__()
            self.row = row

    class ListClosed(Message):
        """The person stays where they are."""

    class PreviewWanted(Message):
        """The mark is on a session whose last messages are not known."""

        def __init__(self, row: SessionRow) -> None:
            super().__init__()
            self.row = row

    class Renamed(Message):
        """The person gives a session another name."""

        def __init__(self, row: SessionRow, title: str) -> None:
            super().__init__()
            self.row = row
            self.title = title

    class Deleted(Message):
        """The person has confirmed that a session goes."""

        def __init__(self, row: SessionRow) -> None:
            super().__init__()
            self.row = row

    def __init__(
        self,
        host: str,
        rows: Sequence[SessionRow],
        current: str,
        sought: str = "",
        *,
        leaves: str = "stays here",
        keymap: Keymap = DEFAULT_KEYMAP,
    ) -> None:
        super().__init__()
        self._keymap = keymap
        self._host = host
        self._rows = list(rows)
        self._current = current
        self._sought = sought
        self._leaves = leaves
        self._at = 1 if not sought and len(rows) > 1 and rows[0].session == current else 0
        self._does = _Does.CHOOSES
        self._typed = ""  # the new name, or the word that confirms
        self._said: dict[str, Sequence[str]] = {}
        self._hint = ""

    def on_mount(self) -> None:
        self._draw()
        self._want_preview()

    def on_resize(self) -> None:
        self._draw()

    # What the host answers.

    def preview(self, session: str, said: Sequence[str]) -> None:
        """Show the last things that a session has said."""
        self._said[session] = said
        self._draw()

    def renamed(self, session: str, title: str) -> None:
        """A session has another name now."""
        self._rows = [
            row.model_copy(update={"prompt": HostText(title) if title else row.prompt})
            if row.session == session
            else row
            for row in self._rows
        ]
        self._tell("Renamed." if title else "Its name is taken back: the next list shows its last prompt.")

    def gone(self, session: str) -> None:
        """A session is deleted."""
        self._rows = [row for row in self._rows if row.session != session]
        self._tell("Deleted.")
        self._want_preview()

    def failed(self, why: str) -> None:
        """Something did not work."""
        self._tell(one_line(why))

    def _tell(self, hint: str) -> None:
        self._hint = hint
        self._at = min(self._at, max(0, len(self._found) - 1))
        self._draw()

    @property
    def _found(self) -> list[SessionRow]:
        words = self._sought.lower().split()
        return [row for row in self._rows if all(word in _searched(row) for word in words)]

    @property
    def _marked(self) -> SessionRow | None:
        found = self._found
        return found[self._at] if self._at < len(found) else None

    # Keys.

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self._hint = ""
        if self._does is _Does.CHOOSES:
            self._choose(event)
        elif event.key == "escape":
            self._does = _Does.CHOOSES
        elif event.key == "enter":
            self._confirmed()
        elif event.key == "backspace":
            self._typed = self._typed[:-1]
        elif event.key == "ctrl+u":
            self._typed = ""
        elif event.character and event.is_printable:
            self._typed += event.character
        self._draw()

    def _choose(self, event: events.Key) -> None:
        found, marked = self._found, self._marked
        step = {"up": -1, "down": 1, "pageup": -_MAX_ROWS, "pagedown": _MAX_ROWS}.get(event.key, 0)
        if event.key == "escape":
            self.post_message(self.ListClosed())
        elif event.key == "enter":
            if marked is not None and marked.session != self._current:
                self.post_message(self.SessionChosen(marked))
        elif step:
            self._at = min(max(self._at + step, 0), max(0, len(found) - 1))
            self._want_preview()
        elif self._keymap.has("session-rename", event.key):
            self._begin(_Does.RENAMES, marked)
        elif self._keymap.has("session-delete", event.key):
            self._begin(_Does.DELETES, marked)
        elif event.key == "backspace":
            self._search(self._sought[:-1])
        elif event.character and event.is_printable:
            self._search(self._sought + event.character)

    def _begin(self, does: _Does, marked: SessionRow | None) -> None:
        if marked is None:
            return
        if does is _Does.DELETES and marked.session == self._current:
            self._hint = "This session is on the screen: /stop ends it, another terminal can delete it then."
            return
        self._does = does
        self._typed = marked.prompt.cell if does is _Does.RENAMES else ""

    def _confirmed(self) -> None:
        marked, typed = self._marked, self._typed.strip()
        if marked is not None and self._does is _Does.RENAMES:
            self.post_message(self.Renamed(marked, typed))
            self._hint = "Renaming …"
        elif marked is not None and typed.lower() == "yes":
            self.post_message(self.Deleted(marked))
            self._hint = "Deleting …"
        else:
            self._hint = "Nothing was deleted."
        self._does = _Does.CHOOSES

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if self._does is _Does.CHOOSES:
            self._search(self._sought + one_line(event.text))
        elif self._does is _Does.RENAMES:
            self._typed += one_line(event.text)
        self._draw()

    def _search(self, text: str) -> None:
        self._sought, self._at = text, 0
        self._want_preview()

    def _want_preview(self) -> None:
        marked = self._marked
        if marked is not None and marked.session not in self._said:
            self.post_message(self.PreviewWanted(marked))

    # What is drawn.

    def _draw(self) -> None:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        found, marked = self._found, self._marked
        width = max(20, self.size.width or self.app.size.width - _FRAME_CELLS)
        room = max(_LEAST_ROWS, self.app.size.height - _FRAME_LINES)
        beside = width >= _WIDE
        rows = min(_MAX_ROWS, room if beside else max(_LEAST_ROWS, room * 3 // 5))
        below = 0 if beside else min(_MAX_ROWS, room - min(rows, max(len(found), 1)) - 1)
        columns = Columns(width * 3 // 5 if beside else width, palette, self._current)
        head = Text(f"Sessions on {one_line(self._host)}", style="bold", no_wrap=True, overflow="ellipsis")
        head.append(f"   {one_line(self._sought)}{CARET}", style=f"not bold {palette.accent}")
        first = min(max(0, self._at - rows // 2), max(0, len(found) - rows))
        shown = found[first : first + rows]
        if marked is not None and self._does is not _Does.CHOOSES:  # the question about it needs the room
            shown, below, beside = [marked], 0, False
        lines = [columns.line(row, marked=row is marked) for row in shown]
        if not lines:
            lines = [Text("  No session fits what you typed.", style=palette.dim)]
        cwd = marked.cwd.raw if marked is not None else ""
        preview = PreviewLines(width - columns.width - 3 if beside else width, palette, cwd)
        said = preview.lines(self._said.get(marked.session), rows if beside else below) if marked is not None else []
        if beside:
            lines = preview.beside(lines, said, columns.width)
        elif below >= 2 and said:
            lines += [Text("─" * width, style=palette.dim), *said]
        self.update(Group(head, *lines, *self._foot(marked)))

    def _foot(self, marked: SessionRow | None) -> list[Text]:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        if marked is not None and self._does is not _Does.CHOOSES:
            deletes = self._does is _Does.DELETES
            return question_lines(self._host, marked, self._typed, palette, deletes=deletes)
        count = f"{len(self._found)} of {len(self._rows)}" if self._sought else str(len(self._rows))
        sessions = "session" if count == "1" else "sessions"
        text = self._hint or f"{count} {sessions} · {self._keymap.filled(_KEYS) % self._leaves}"
        style = palette.warn if self._hint else palette.dim
        return [Text(text, style=f"not bold {style}")]


def _searched(row: SessionRow) -> str:
    return f"{row.session} {row.cwd.raw} {row.prompt.raw} {row.state}".lower()
