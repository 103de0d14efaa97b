"""The lines of the panel of sessions: a row each, the preview of one, and the questions about one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from ccb.tunnel.plain_text import HostText, one_line

from ...commands.sessions.table import age_text, cut
from ...connect.session_list import SessionRow
from ..model.notices import path_in
from ..painting.screen import CARET
from ..theme.palette import Palette

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
