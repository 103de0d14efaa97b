"""The sessions of a host: the list from which the person opens, renames and deletes one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from typing import Literal

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text
from textual import events, work

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText, age_text, one_line
from ccb.tunnel.wire.control_protocol import RequestFailed

from ...commands.session_table import cut
from ...connect.host_sessions import HostSessions
from ...connect.session_rows import SessionRow
from ...terminal.keymap import Keymap
from ...transcript.notices import path_in
from ..rendering.themes import Palette
from ..widgets.painting import CARET
from .list_panel import FRAME_CELLS, SearchedPanel, typed

_FRAME_LINES = 10
"""Lines of the screen that the list and the preview leave to the frame, the composer and the conversation."""
_WIDE = 110  # cells from which the preview stands beside the list
_LEAST_ROWS = 3
_KEYS = "Enter opens · {session-rename!} renames · {session-delete!} deletes · Esc %s · type to search"
_SETTLE_S = 0.15  # seconds that the mark rests on a session before its preview is fetched


class SessionPanel(SearchedPanel[SessionRow]):
    """Lists sessions of `host`. `current` cannot be chosen; `rename_here` names it. `leaves` says what Esc does."""

    def __init__(
        self,
        host: str,
        sessions: HostSessions,
        rows: Sequence[SessionRow],
        keymap: Keymap,
        *,
        current: str = "",
        sought: str = "",
        leaves: str = "stays here",
        rename_here: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__(rows)
        self.keymap = keymap
        self._host = host
        self._sessions = sessions
        self._current = current
        self._sought = sought
        self._leaves = leaves
        self._rename_here = rename_here
        here = [row.cwd.raw for row in rows if row.session == current] or list({row.cwd.raw for row in rows})
        self._usual = here[0] if len(here) == 1 else ""
        self._at = 1 if not sought and len(rows) > 1 and rows[0].session == current else 0
        self._asks: Literal["", "rename", "delete"] = ""  # what is asked about the marked session
        self._typed = ""  # the new name, or the word that confirms
        self._said: dict[str, Sequence[str]] = {}
        self._hint = ""
        self._chosen: asyncio.Future[SessionRow | None] = asyncio.get_running_loop().create_future()

    def on_mount(self) -> None:
        super().on_mount()
        self.focus()
        self._want_preview()

    def on_unmount(self) -> None:
        self._choose(None)

    async def chosen(self) -> SessionRow | None:
        """Return the session that the person has chosen, None if they want none."""
        return await self._chosen

    def words_of(self, row: SessionRow) -> str:
        return f"{row.session} {row.cwd.raw} {row.prompt.raw} {row.state}"

    # Keys.

    def _pressed(self, event: events.Key) -> None:
        self._hint = ""
        if not self._asks:
            self._chooses(event)
        elif event.key == "escape":
            self._asks = ""
        elif event.key == "enter":
            self._confirmed()
        else:
            self._typed = typed(self._typed, event)

    def _chooses(self, event: events.Key) -> None:
        marked = self._marked
        if event.key == "escape":
            self._choose(None)
        elif event.key == "enter":
            if marked is not None and marked.session != self._current:
                self._choose(marked)
        elif self.keymap.has("session-rename", event.key) and marked is not None:
            self._asks, self._typed = "rename", marked.prompt.cell
        elif self.keymap.has("session-delete", event.key) and marked is not None:
            if marked.session == self._current:
                self._hint = "This session is on the screen: /stop ends it, another terminal can delete it then."
            else:
                self._asks, self._typed = "delete", ""
        elif self._step(event.key, len(self._found)):
            self._want_preview()
        elif (sought := typed(self._sought, event)) != self._sought:
            self._search(sought)

    def _choose(self, row: SessionRow | None) -> None:
        if not self._chosen.done():
            self._chosen.set_result(row)

    def _confirmed(self) -> None:
        marked, given = self._marked, self._typed.strip()
        if marked is not None and self._asks == "rename":
            self._rename(marked.session, given)
            self._hint = "Renaming …"
        elif marked is not None and given.lower() == "yes":
            self._delete(marked)
            self._hint = "Deleting …"
        else:
            self._hint = "Nothing was deleted."
        self._asks = ""

    def _pasted(self, text: str) -> None:
        if not self._asks:
            super()._pasted(text)
        elif self._asks == "rename":
            self._typed += text

    def _search(self, text: str) -> None:
        super()._search(text)
        self._want_preview()

    # What the host is asked.

    def _want_preview(self) -> None:
        marked = self._marked
        if marked is not None and marked.session not in self._said:
            self._preview(marked.session)

    @work(exclusive=True, group="preview")
    async def _preview(self, session: str) -> None:
        await asyncio.sleep(_SETTLE_S)
        try:
            self._said[session] = [each.cell for each in await self._sessions.last_said(session)]
        except CcbError as error:
            self._said[session] = [error.what]
        self._draw()

    @work(group="change")
    async def _rename(self, session: str, title: str) -> None:
        if session == self._current and not title:
            self._tell("a session on the screen needs a name")
            return
        here = self._rename_here if session == self._current else None
        if await self._done(here(title) if here is not None else self._sessions.rename(session, title)):
            name = {"prompt": HostText(title)} if title else {}
            self._rows = [each.model_copy(update=name) if each.session == session else each for each in self._rows]
            self._tell("Renamed." if title else "Its name is taken back: the next list shows its first prompt.")

    @work(group="change")
    async def _delete(self, row: SessionRow) -> None:
        if await self._done(self._sessions.remove(row)):
            self._rows = [each for each in self._rows if each.session != row.session]
            self._tell("Deleted.")
            self._want_preview()

    async def _done(self, change: Awaitable[object]) -> bool:
        try:
            await change
        except CcbError as error:
            self._tell(one_line(f"{error.what}. {error.do}"))
        except RequestFailed as error:
            self._tell(one_line(str(error)))
        else:
            return True
        return False

    def _tell(self, hint: str) -> None:
        self._hint = hint
        self._at = min(self._at, max(0, len(self._found) - 1))
        self._draw()

    # What is drawn.

    def _draw(self) -> None:
        palette, found, marked = self._palette, self._found, self._marked
        width = max(20, self.size.width or self.app.size.width - FRAME_CELLS)
        room = max(_LEAST_ROWS, self.app.size.height - _FRAME_LINES)
        if beside := width >= _WIDE:
            rows, columns = min(self.MAX_ROWS, room), width * 3 // 5
            room_for_text, most = width - columns - 3, rows
        else:
            rows, columns = min(self.MAX_ROWS, max(_LEAST_ROWS, room * 3 // 5)), width
            room_for_text, most = width, min(self.MAX_ROWS, room - min(rows, max(len(found), 1)) - 1)
        shown = [found[place] for place in self._window(len(found), rows)]
        head = self._head(f"Sessions on {one_line(self._host)}")
        if marked is not None and self._asks:  # the question about it needs the room
            asked = question_lines(self._host, marked, self._typed, palette, deletes=self._asks == "delete")
            line = session_line(marked, columns, palette, self._current, self._usual, marked=True)
            self.update(Group(head, line, *asked))
            return
        lines = [session_line(row, columns, palette, self._current, self._usual, marked=row is marked) for row in shown]
        lines = lines or [Text("  No session fits what you typed.", style=palette.dim)]
        said: list[Text] = []
        if marked is not None:
            said = preview_lines(self._said.get(marked.session), most, room_for_text, palette, marked.cwd.raw)
        if beside:
            lines = _side_by_side(lines, said, columns, palette)
        elif most >= 2 and said:
            lines += [Text("─" * width, style=palette.dim), *said]
        foot = self._hint or f"{self._count('session')} · {self.keymap.filled(_KEYS) % self._leaves}"
        style = palette.warn if self._hint else palette.dim
        self.update(Group(head, *lines, Text(foot, style=f"not bold {style}")))


_STATES = {"running": "working", "requires_action": "asks you", "idle": "idle", "ended": "ended", "moved": "moved"}
_NUMBER_CELLS, _STATE_CELLS, _MIN_PATH_CELLS = 5, 9, 60
_ASKED = "asks to use "
_SPEAKERS = (("prompt: ", "❯ "), ("agent: ", "● "), (_ASKED, "? "), ("call ", "⚙ "), ("turn failed: ", "✗ "))
_CALLS = ("? ", "⚙ ")
_CALL = re.compile(r'^(\S+) \{"\w+": ?(?:\[\{"\w+": ?)?"((?:[^"\\]|\\["\\/bfnrt])*).*', re.DOTALL)
_QUIET = ("idle", "ended", "moved", "")


def session_line(row: SessionRow, width: int, palette: Palette, current: str, usual: str, *, marked: bool) -> Text:
    """Draw a session. Its directory is shown if that is not the `usual` one."""
    state = cut("here" if row.session == current else _STATES.get(row.state, row.state), _STATE_CELLS)
    line = Text(no_wrap=True).append("› " if marked else "  ", style=f"bold {palette.accent}")
    used = f"{age_text(row.idle_s):>{_NUMBER_CELLS}}"
    line.append(f"{used}  {state:<{_STATE_CELLS}}  ", style=f"not bold {palette.dim}")
    path = cut(row.cwd.cell, width // 3) if width >= _MIN_PATH_CELLS and row.cwd.raw != usual else ""
    room = width - _NUMBER_CELLS - _STATE_CELLS - 6 - (cell_len(path) + 2 if path else 0)
    prompt = cut(row.prompt.cell or ("(commands only)" if row.prompts else "(no prompt yet)"), max(8, room))
    line.append(prompt, style="bold" if marked else "not bold")
    if path:
        line.append(" " * max(2, room - cell_len(prompt) + 2) + path, style=f"not bold {palette.dim}")
    return line


def preview_lines(said: Sequence[str] | None, most: int, width: int, palette: Palette, cwd: str) -> list[Text]:
    """Draw the last things that a session has said, paths relative to `cwd`. None: the host has not answered yet."""
    if most <= 0:
        return []
    if said is None:
        return [Text("…", style=palette.dim)]
    still_asked = said[-1:]  # of the others, the call itself is there
    told = [each for each in said[:-1] if not each.startswith(_ASKED)] + [*still_asked]
    lines = [_said_line(each, max(10, width), palette, cwd) for each in told[-most:]]
    return lines or [Text("Nothing was said yet.", style=palette.dim)]


def _said_line(said: str, width: int, palette: Palette, cwd: str) -> Text:
    def named(call: re.Match[str]) -> str:  # by the tool and the first text of its input, such as the command
        first = json.loads('"' + call[2] + '"', strict=False)
        return f"{call[1]} {path_in(cwd, first)}"

    prefix, sign = next((each for each in _SPEAKERS if said.startswith(each[0])), ("", ""))
    words = said.removeprefix(prefix)
    text = sign + one_line(_CALL.sub(named, words) if sign in _CALLS else words)
    style = {"❯ ": f"bold {palette.accent}", "● ": "not bold", "✗ ": palette.bad}.get(sign, palette.dim)
    return Text(cut(text, width), style=style, no_wrap=True)


def _side_by_side(lines: Sequence[Text], said: Sequence[Text], width: int, palette: Palette) -> list[Text]:
    joined = []
    for left, right in zip_longest(lines, said, fillvalue=Text()):
        gap = " " * max(0, width - left.cell_len) + " │ "
        joined.append(Text.assemble(left, (gap, palette.dim), right, no_wrap=True))
    return joined


def question_lines(host: str, row: SessionRow, typed: str, palette: Palette, *, deletes: bool) -> list[Text]:
    lines, question = [], "New name (Enter keeps it, Esc leaves it): "
    if deletes:
        name, place = HostText(cut(row.prompt.cell or row.session, 60)), f"{one_line(host)}:{row.cwd.cell}"
        lines.append(Text.assemble((f"Delete {name}", f"bold {palette.bad}"), (f" on {place}?", "bold")))
        if row.driver:
            away = ", whose connection is lost" if row.driver_away else ""
            who = f"{HostText(cut(row.driver.cell, 80))} drives it{away}: it ends for them, too."
            lines.append(Text(who, style=f"bold {palette.warn}"))
        if row.may_run and row.state not in _QUIET:
            killed = "Its agent works or waits now: what it runs on the host is killed."
            lines.append(Text(killed, style=palette.warn))
        what = "Its conversation and the earlier versions of files go; the files of the project stay."
        lines.append(Text(what, style=f"not bold {palette.dim}"))
        question = "Type yes and Enter to delete it, Esc keeps it: "
    asked = Text(question, style=f"not bold {palette.accent}")
    return [*lines, asked.append(f"{one_line(typed)}{CARET}", style="bold")]
