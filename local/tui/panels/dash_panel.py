"""The list of `ccb dash`: the sessions of all hosts, those that wait for the person first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.text import Text
from textual import events

from ccb.tunnel.plain_text import age_text, one_line

from ...commands.session_table import cut, driver_text
from ...dash.dash_model import ASKS, NO_SESSION, WORKS, Dash, DashRow, HostWatch
from ...ledger.call_ledger import dollars
from ..widgets.painting import CARET
from .list_panel import SearchedPanel, typed

Act = Callable[[str, DashRow, str], object]
_STATES = {ASKS: "asks you", WORKS: "works", "idle": "idle", "ended": "ended", "moved": "moved"}
_MAX_HOST, _MAX_DRIVER = 28, 20
_WIDE, _MEDIUM = 90, 60  # cells of the screen from which there are cost and driver, and the age
_LINES_ABOVE = 2
_FRAME_LINES = 3  # the title, and a blank line at it and at the foot
_SEARCH = "search"
_ACTIONS = {
    "slash": _SEARCH,
    "enter": "open",
    "a": "answer",
    "n": "new",
    "r": "rename",
    "s": "stop",
    "l": "logs",
    "p": "ports",
    "q": "leave",
    "ctrl+d": "leave",
    "escape": "close",
}
_KEYS = "Enter opens · a answers · n new · r renames · s stops · l logs · p ports · / searches · q leaves"
_QUESTIONS = {
    _SEARCH: "Search (Enter keeps it, Esc ends it): ",
    "rename": "New name (Enter keeps it, Esc leaves it): ",
    "new": "Directory of the new session on {host} (Enter starts it, Esc does not): ",
    "stop": "Stop {name} on {host}? It can be resumed. Type yes and Enter, Esc lets it run: ",
}


class DashPanel(SearchedPanel[DashRow]):
    """Draws the rows of `dash`. `act` is called with what the person does with the marked row. The mark stays on its
    row wherever that goes."""

    DEFAULT_CSS = """
    DashPanel { height: 1fr; border: none; padding: 0 1; }
    """
    MAX_ROWS = 1_000

    def __init__(self, dash: Dash, act: Act) -> None:
        super().__init__(())
        self._dash, self._act = dash, act
        self._sought = dash.sought
        self._asks = ""  # one of _QUESTIONS
        self._question = ""
        self._asked: DashRow | None = None  # the row that is asked about
        self._typed = ""
        self._shown = range(0)
        self.below: Sequence[str] = ()  # lines under the list, such as a log

    def refresh_rows(self) -> None:
        """The rows have changed, or are older now."""
        rows = self._dash.rows()
        with_rows = {row.host.name for row in rows}
        hosts = [DashRow(each, NO_SESSION, 0.0) for each in self._dash.hosts if each.name not in with_rows]
        self._rows = [*rows, *hosts]
        found = self._found
        places: dict[tuple[str, str] | None, int] = {row.key: place for place, row in enumerate(found)}
        self._at = places.get(self._dash.marked, min(self._at, max(0, len(found) - 1)))
        self._draw()

    def words_of(self, row: DashRow) -> str:
        each = row.session
        state = _STATES.get(each.state, each.state)
        return f"{row.host.name} {state} {each.session} {each.prompt.raw} {each.cwd.raw} {each.driver.raw}"

    # Keys.

    def _pressed(self, event: events.Key) -> None:
        self._dash.said = ""
        if self._asks in ("", _SEARCH) and self._step(event.key, len(self._found)):
            pass
        elif self._asks:
            self._answers(event)
        elif action := _ACTIONS.get(event.key):
            self._acts(action)
        self._dash.sought, self._dash.marked = self._sought, self._marked.key if self._marked is not None else None

    def on_click(self, event: events.Click) -> None:
        """Mark the row that is clicked on, or open the marked one."""
        row = event.y - _LINES_ABOVE
        if self._asks or not 0 <= row < len(self._shown):
            return
        if self._shown[row] == self._at:
            self._acts("open")
        self._at = self._shown[row]
        self._dash.marked = self._marked.key if self._marked is not None else None
        self._draw()

    def _acts(self, action: str) -> None:
        marked = self._marked
        if marked is not None and marked.is_host and marked.host.up and action == "open":
            action = "new"
        if action == "leave":
            self.app.exit(None)
        elif action == "close":
            self.below, self._sought = (), self._sought if self.below else ""
            self.refresh_rows()
        elif action == _SEARCH:
            self._asks, self._question, self._typed = action, _QUESTIONS[action], self._sought
        elif marked is None:
            pass
        elif marked.is_host and action not in ("open", "new"):
            self._dash.said = "This is no session: Enter starts one, or logs in if the host does not answer."
        elif action in _QUESTIONS:
            proposed = {"rename": marked.session.prompt.cell, "new": marked.session.cwd.cell or "~"}
            self._asks, self._asked, self._typed = action, marked, proposed.get(action, "")
            name, host = cut(marked.session.prompt.cell or marked.session.session, 40), one_line(marked.host.name)
            self._question = _QUESTIONS[action].format(host=host, name=name)
        else:
            self._act(action, marked, "")

    def _answers(self, event: events.Key) -> None:
        asks, asked = self._asks, self._asked
        if event.key not in ("enter", "escape"):
            self._types(typed(self._typed, event))
            return
        self._asks, given = "", self._typed.strip()
        if asks == _SEARCH:
            self._sought = "" if event.key == "escape" else self._sought
            self.refresh_rows()
        elif event.key == "enter" and asked is not None and (asks != "stop" or given.lower() == "yes"):
            self._act(asks, asked, given)

    def _types(self, text: str) -> None:
        if self._asks == _SEARCH and text != self._typed:
            self._search(text)
        self._typed = text

    def _pasted(self, text: str) -> None:
        if self._asks and self._asks != "stop":
            self._types(self._typed + text)

    # What is drawn.

    def _draw(self) -> None:
        palette, found = self._palette, self._found
        width = max(20, self.size.width)
        foot = self._foot().wrap(self.app.console, width)  # what is typed there must be seen on a phone, too
        height = max(3, self.size.height - _FRAME_LINES - len(foot))
        below = [Text(cut(each, width), style=palette.dim, no_wrap=True) for each in self.below][-(height // 2) :]
        if below:
            below.insert(0, Text("─" * width, style=palette.dim))
        self._shown = self._window(len(found), max(1, height - len(below)))
        marked, costs, now = self._marked, self._dash.costs, time.monotonic()
        shown = [found[each] for each in self._shown]
        cells = [_cells(row, costs.get(row.session.session, 0.0), width, now) for row in shown]
        sizes = [max(map(cell_len, column)) for column in zip_longest(*cells, fillvalue="")]
        rows = [
            self._line(row, zip(own, sizes, strict=False), width, marked=row is marked)  # of a host there are fewer
            for row, own in zip(shown, cells, strict=True)
        ]
        rows = rows or [Text("  No session fits what you typed.", style=palette.dim)]
        gap = [Text()] * max(1, height - len(rows) - len(below) + 1)
        self.update(Group(self._title(), Text(), *rows, *gap, *below, *foot))

    def _line(self, row: DashRow, cells: Iterable[tuple[str, int]], width: int, *, marked: bool) -> Text:
        palette, up = self._palette, row.host.up
        dim, warn, line = f"not bold {palette.dim}", f"not bold {palette.warn}", self._row(marked=marked)
        colours = {ASKS: f"bold {palette.warn}", WORKS: f"not bold {palette.good}"} if up else {}
        for number, (text, size) in enumerate(cells):
            style = dim if number else colours.get(row.session.state, dim)
            line.append(f"{set_cell_size(text, size)}  " if size else "", style=style)
        if row.is_host:
            return line.append(_why(row.host), style=f"not bold {palette.bad}" if row.host.problem else dim)
        if not up:
            line.append(f"{age_text(time.monotonic() - row.host.heard_at)} old  ", style=warn)
        title = cut(row.session.prompt.cell or "(no prompt yet)", width * 2 // 5)
        line.append(title, style=("bold" if marked else "") if up else dim)
        return line.append(f"  {row.session.last.cell}", style=warn if row.asks and up else dim)

    def _title(self) -> Text:
        palette, dash = self._palette, self._dash
        sessions = [each for each in self._rows if not each.is_host]
        asking, up = sum(each.asks for each in sessions), sum(each.up for each in dash.hosts)
        title = Text("ccb dash", style="bold", no_wrap=True, overflow="ellipsis")
        if asking:
            title.append(f"  {asking} wait{'s' if asking == 1 else ''} for you", style=f"bold {palette.warn}")
        hosts = f"{up} of {len(dash.hosts)} hosts" if up < len(dash.hosts) else _counted(up, "host")
        title.append(f"  {hosts} · {_counted(len(sessions), 'session')}", style=f"not bold {palette.dim}")
        if self._sought:
            title.append(f"   /{one_line(self._sought)}", style=f"not bold {palette.accent}")
        return title

    def _foot(self) -> Text:
        palette, said = self._palette, self._dash.said
        if self._asks:
            given = f"{one_line(self._typed)}{CARET}"
            return Text(self._question, style=palette.accent).append(given, style="bold")
        return Text(one_line(said) or _KEYS, style=palette.warn if said else palette.dim)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _cells(row: DashRow, usd: float, width: int, now: float) -> list[str]:
    """Return the texts in front of the title: state, host, age, cost, driver."""
    session, host = row.session, row.host
    name = cut(one_line(host.name), _MAX_HOST)
    if row.is_host:
        return ["login" if host.needs_person else "silent" if host.problem else "" if host.up else "…", name]
    cells = [_STATES.get(session.state, session.state), name]
    if width >= _MEDIUM:
        cells.append(f"{age_text(row.idle_s(now)):>3}")
    if width >= _WIDE:
        cells.append(f"{dollars(usd):>6}" if usd else "")
        cells.append(driver_text(session, _MAX_DRIVER) if session.may_run and session.driver and host.up else "")
    return cells


def _why(host: HostWatch) -> str:
    why = one_line(host.problem) or ("no sessions" if host.up else "connecting")
    return f"{why}. Enter logs in." if host.needs_person else why
