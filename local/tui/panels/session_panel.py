"""Sessions."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text
from textual import events, work
from textual.containers import Vertical
from textual.message import Message

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire.control_protocol import RequestFailed

from ...commands.session_table import age_text, cut
from ...connect.host_sessions import HostSessions
from ...connect.session_rows import SessionRow
from ...terminal.keymap import DEFAULT_KEYMAP, Keymap
from ...transcript.notices import path_in
from ..rendering.themes import Palette
from ..widgets.painting import CARET
from .list_panel import ListPanel, PanelClosed, typed

_FRAME_LINES = 10
"""Lines of the screen that the list and the preview leave to the frame, the composer and the conversation."""
_WIDE = 110  # cells from which the preview stands beside the list
_FRAME_CELLS = 6
_LEAST_ROWS = 3
_KEYS = "Enter opens · {session-rename!} renames · {session-delete!} deletes · Esc %s · type to search"


class _Does(Enum):
    CHOOSES = "chooses"
    RENAMES = "renames"
    DELETES = "deletes"


class SessionPanel(ListPanel):
    """`current` is the session on the screen of those on `host`: it is marked and cannot be chosen. `leaves` says what
    Esc does."""

    LETTERS = False

    @dataclass
    class SessionChosen(Message):
        """The person wants this session on the screen."""

        row: SessionRow

    @dataclass
    class PreviewWanted(Message):
        """The mark is on a session whose last messages are not known."""

        row: SessionRow

    @dataclass
    class Renamed(Message):
        """The person gives a session another name."""

        row: SessionRow
        title: str

    @dataclass
    class Deleted(Message):
        """The person has confirmed that a session goes."""

        row: SessionRow

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
        self.keymap = keymap
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
        super().on_mount()
        self._want_preview()

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

    def _pressed(self, event: events.Key) -> None:
        self._hint = ""
        if self._does is _Does.CHOOSES:
            self._choose(event)
        elif event.key == "escape":
            self._does = _Does.CHOOSES
        elif event.key == "enter":
            self._confirmed()
        else:
            self._typed = typed(self._typed, event)

    def _choose(self, event: events.Key) -> None:
        marked = self._marked
        if event.key == "escape":
            self.post_message(PanelClosed())
        elif event.key == "enter":
            if marked is not None and marked.session != self._current:
                self.post_message(self.SessionChosen(marked))
        elif self.keymap.has("session-rename", event.key):
            self._begin(_Does.RENAMES, marked)
        elif self.keymap.has("session-delete", event.key):
            self._begin(_Does.DELETES, marked)
        elif self._step(event.key, len(self._found)):
            self._want_preview()
        elif (sought := typed(self._sought, event)) != self._sought:
            self._search(sought)

    def _begin(self, does: _Does, marked: SessionRow | None) -> None:
        if marked is None:
            return
        if does is _Does.DELETES and marked.session == self._current:
            self._hint = "This session is on the screen: /stop ends it, another terminal can delete it then."
            return
        self._does = does
        self._typed = marked.prompt.cell if does is _Does.RENAMES else ""

    def _confirmed(self) -> None:
        marked, given = self._marked, self._typed.strip()
        if marked is not None and self._does is _Does.RENAMES:
            self.post_message(self.Renamed(marked, given))
            self._hint = "Renaming …"
        elif marked is not None and given.lower() == "yes":
            self.post_message(self.Deleted(marked))
            self._hint = "Deleting …"
        else:
            self._hint = "Nothing was deleted."
        self._does = _Does.CHOOSES

    def _pasted(self, text: str) -> None:
        if self._does is _Does.CHOOSES:
            self._search(self._sought + text)
        elif self._does is _Does.RENAMES:
            self._typed += text

    def _search(self, text: str) -> None:
        self._sought, self._at = text, 0
        self._want_preview()

    def _want_preview(self) -> None:
        marked = self._marked
        if marked is not None and marked.session not in self._said:
            self.post_message(self.PreviewWanted(marked))

    # What is drawn.

    def _draw(self) -> None:
        palette, found, marked = self._palette, self._found, self._marked
        width = max(20, self.size.width or self.app.size.width - _FRAME_CELLS)
        room = max(_LEAST_ROWS, self.app.size.height - _FRAME_LINES)
        beside = width >= _WIDE
        rows = min(self.MAX_ROWS, room if beside else max(_LEAST_ROWS, room * 3 // 5))
        below = 0 if beside else min(self.MAX_ROWS, room - min(rows, max(len(found), 1)) - 1)
        columns = Columns(width * 3 // 5 if beside else width, palette, self._current)
        head = Text(f"Sessions on {one_line(self._host)}", style="bold", no_wrap=True, overflow="ellipsis")
        head.append(f"   {one_line(self._sought)}{CARET}", style=f"not bold {palette.accent}")
        shown = [found[place] for place in self._window(len(found), rows)]
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
        palette = self._palette
        if marked is not None and self._does is not _Does.CHOOSES:
            deletes = self._does is _Does.DELETES
            return question_lines(self._host, marked, self._typed, palette, deletes=deletes)
        count = f"{len(self._found)} of {len(self._rows)}" if self._sought else str(len(self._rows))
        sessions = "session" if count == "1" else "sessions"
        text = self._hint or f"{count} {sessions} · {self.keymap.filled(_KEYS) % self._leaves}"
        style = palette.warn if self._hint else palette.dim
        return [Text(text, style=f"not bold {style}")]


def _searched(row: SessionRow) -> str:
    return f"{row.session} {row.cwd.raw} {row.prompt.raw} {row.state}".lower()


_SETTLE_S = 0.15
"""Seconds that the mark rests on a session before its preview is fetched."""


class SessionPicker(Vertical):
    """Shows the panel until the person has chosen. `rename_here` names the session on the screen, which knows itself
    what it is called."""

    DEFAULT_CSS = "SessionPicker { height: auto; }"

    def __init__(self, host: str, sessions: HostSessions, panel: SessionPanel) -> None:
        super().__init__()
        self._host = host
        self._sessions = sessions
        self.panel = panel
        self.here = ""
        self.rename_here: Callable[[str], Awaitable[object]] | None = None
        self._chosen: asyncio.Future[SessionRow | None] = asyncio.get_running_loop().create_future()

    def on_mount(self) -> None:
        self.mount(self.panel)
        self.panel.focus()

    def on_unmount(self) -> None:
        self._choose(None)

    async def chosen(self) -> SessionRow | None:
        """Return the session that the person has chosen, None if they want none."""
        return await self._chosen

    def on_session_panel_session_chosen(self, event: SessionPanel.SessionChosen) -> None:
        event.stop()
        self._choose(event.row)

    def on_panel_closed(self, event: PanelClosed) -> None:
        event.stop()
        self._choose(None)

    def _choose(self, row: SessionRow | None) -> None:
        if not self._chosen.done():
            self._chosen.set_result(row)

    @work(exclusive=True, group="preview")
    async def on_session_panel_preview_wanted(self, event: SessionPanel.PreviewWanted) -> None:
        event.stop()
        await asyncio.sleep(_SETTLE_S)
        try:
            said = [each.cell for each in await self._sessions.last_said(event.row.session)]
        except CcbError as error:
            said = [error.what]
        self.panel.preview(event.row.session, said)

    @work(group="change")
    async def on_session_panel_renamed(self, event: SessionPanel.Renamed) -> None:
        event.stop()
        session, title = event.row.session, event.title

        async def rename() -> None:
            if session == self.here and self.rename_here is not None:
                if not title:
                    raise RequestFailed("a session on the screen needs a name")
                await self.rename_here(title)
            else:
                await self._sessions.rename(session, title)
            self.panel.renamed(session, title)

        await self._done(rename)

    @work(group="change")
    async def on_session_panel_deleted(self, event: SessionPanel.Deleted) -> None:
        event.stop()

        async def delete() -> None:
            await self._sessions.remove(event.row)
            self.panel.gone(event.row.session)

        await self._done(delete)

    async def _done(self, change: Callable[[], Awaitable[None]]) -> None:
        try:
            await change()
        except CcbError as error:
            self.panel.failed(f"{error.what}. {error.do}")
        except RequestFailed as error:
            self.panel.failed(str(error))


_STATES = {"running": "working", "requires_action": "asks you", "idle": "idle", "ended": "ended"}
_NUMBER_CELLS, _STATE_CELLS, _MIN_PATH_CELLS = 5, 9, 60
_ASKED = "asks to use "
_SPEAKERS = (("prompt: ", "❯ "), ("agent: ", "● "), (_ASKED, "? "), ("call ", "⚙ "), ("turn failed: ", "✗ "))
_CALLS = ("? ", "⚙ ")
_CALL = re.compile(r'^(\S+) \{"\w+": ?(?:\[\{"\w+": ?)?"((?:[^"\\]|\\["\\/bfnrt])*).*', re.DOTALL)
_QUIET = ("idle", "ended", "")


class Columns:
    """Draws the rows in `width` cells."""

    def __init__(self, width: int, palette: Palette, current: str) -> None:
        self.width = width
        self._palette = palette
        self._current = current

    def line(self, row: SessionRow, *, marked: bool) -> Text:
        """Return one row."""
        width, palette = self.width, self._palette
        here = row.session == self._current
        state = "here" if here else _STATES.get(row.state, row.state)
        line = Text(no_wrap=True).append("› " if marked else "  ", style=f"bold {palette.accent}")
        used, state = age_text(row.idle_s), cut(state, _STATE_CELLS)
        line.append(f"{used:>{_NUMBER_CELLS}}  {state:<{_STATE_CELLS}}  ", style=f"not bold {palette.dim}")
        path = cut(row.cwd.cell, width // 3) if width >= _MIN_PATH_CELLS else ""
        room = width - _NUMBER_CELLS - _STATE_CELLS - 6 - (cell_len(path) + 2 if path else 0)
        prompt = cut(row.prompt.cell or "(no prompt yet)", max(8, room))
        line.append(prompt, style="bold" if marked else "not bold")
        if path:
            line.append(" " * max(2, room - cell_len(prompt) + 2) + path, style=f"not bold {palette.dim}")
        return line


class PreviewLines:
    """Draws the last things that a session has said in `width` cells, paths relative to its directory `cwd`."""

    def __init__(self, width: int, palette: Palette, cwd: str = "") -> None:
        self._width = max(10, width)
        self._palette = palette
        self._cwd = cwd

    def lines(self, said: Sequence[str] | None, most: int) -> list[Text]:
        """Return at most `most` lines, those of the newest things. None: the host has not answered yet."""
        if most <= 0:
            return []
        if said is None:
            return [Text("…", style=self._palette.dim)]
        still_asked = said[-1:]  # of the others, the call itself is there
        told = [each for each in said[:-1] if not each.startswith(_ASKED)] + [*still_asked]
        return [self._line(each) for each in told[-most:]] or [Text("Nothing was said yet.", style=self._palette.dim)]

    def beside(self, lines: list[Text], said: Sequence[Text], width: int) -> list[Text]:
        """Return the rows, each `width` cells wide, with the preview on their right."""
        joined = []
        for number in range(max(len(lines), len(said))):
            left = lines[number] if number < len(lines) else Text()
            gap = " " * max(0, width - left.cell_len) + " │ "
            right = said[number] if number < len(said) else Text()
            joined.append(Text.assemble(left, (gap, self._palette.dim), right, no_wrap=True))
        return joined

    def _line(self, said: str) -> Text:
        palette = self._palette
        for prefix, sign in _SPEAKERS:
            if said.startswith(prefix):
                style = {"❯ ": f"bold {palette.accent}", "● ": "not bold", "✗ ": palette.bad}.get(sign, palette.dim)
                words = one_line(
                    _CALL.sub(self._named, said.removeprefix(prefix)) if sign in _CALLS else said[len(prefix) :]
                )
                return Text(cut(sign + words, self._width), style=style, no_wrap=True)
        return Text(cut(one_line(said), self._width), style=palette.dim, no_wrap=True)

    def _named(self, call: re.Match[str]) -> str:
        """Return a call as the tool and the first text of its input, such as the command."""
        first = json.loads('"' + call[2] + '"', strict=False)
        return f"{call[1]} {path_in(self._cwd, first)}"


def question_lines(host: str, row: SessionRow, typed: str, palette: Palette, *, deletes: bool) -> list[Text]:
    """Return the question that the person answers by typing: the new name, or the word that deletes."""
    name = HostText(cut(row.prompt.cell or row.session, 60))
    if not deletes:
        asked = Text("New name (Enter keeps it, Esc leaves it): ", style=f"not bold {palette.accent}")
        return [asked.append(f"{one_line(typed)}{CARET}", style="bold")]
    place = f"{one_line(host)}:{row.cwd.cell}"
    lines = [Text.assemble((f"Delete {name}", f"bold {palette.bad}"), (f" on {place}?", "bold"))]
    if row.driver:
        away = ", whose connection is lost" if row.driver_away else ""
        who = f"{HostText(cut(row.driver.cell, 80))} drives it{away}: it ends for them, too."
        lines.append(Text(who, style=f"bold {palette.warn}"))
    if row.alive and row.state not in _QUIET:
        lines.append(Text("Its agent works or waits now: what it runs on the host is killed.", style=palette.warn))
    what = "Its conversation and the earlier versions of files go; the files of the project stay."
    lines.append(Text(what, style=f"not bold {palette.dim}"))
    asked = Text("Type yes and Enter to delete it, Esc keeps it: ", style=f"not bold {palette.accent}")
    return [*lines, asked.append(f"{one_line(typed)}{CARET}", style="bold")]
