"""The list of `ccb dash`: the sessions of all hosts, those that wait for the person first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text
from textual import events

from ccb.tunnel.plain_text import one_line

from ...commands.session_table import age_text, cut
from ...dash.dash_model import ASKS, WORKS, Dash, DashRow, HostWatch
from ...ledger.call_ledger import dollars
from ..rendering.themes import Palette
from ..widgets.painting import CARET
from .list_panel import SearchedPanel, typed

Entry = DashRow | HostWatch
Act = Callable[[str, Entry, str], object]
_STATES = {ASKS: "asks you", WORKS: "works", "idle": "idle", "ended": "ended", "moved": "moved"}
_STATE_CELLS, _AGE_CELLS, _COST_CELLS, _MAX_HOST = 8, 4, 7, 28
_WIDE = 90  # cells from which cost and driver are shown
_NARROW = 60  # cells below which there is only the title
_MIN_LAST = 4
_MAX_DRIVER = 16
_FRAME_LINES = 4  # title, foot, and a blank line at each
_SEARCH = ("slash", "ctrl+f")
_ACTIONS = {
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
    "rename": "New name (Enter keeps it, Esc leaves it): ",
    "new": "Directory of the new session on {host} (Enter starts it, Esc does not): ",
    "stop": "Stop {name} on {host}? It can be resumed. Type yes and Enter, Esc lets it run: ",
}


class DashPanel(SearchedPanel[Entry]):
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
        self._searches = False
        self._asks = ""  # one of _QUESTIONS
        self._asked: Entry | None = None  # the row that is asked about
        self._typed = ""
        self.below: Sequence[str] = ()  # lines under the list, such as a log

    def refresh_rows(self) -> None:
        """The rows have changed, or are older now."""
        rows = self._dash.rows()
        with_rows = {row.host.name for row in rows}
        self._rows = [*rows, *(each for each in self._dash.hosts if each.name not in with_rows)]
        found = self._found
        places = {_key(entry): place for place, entry in enumerate(found)}
        self._at = places.get(self._dash.marked, min(self._at, max(0, len(found) - 1)))
        self._draw()

    def words_of(self, row: Entry) -> str:
        if isinstance(row, HostWatch):
            return row.name
        each = row.session
        state = _STATES.get(each.state, each.state)
        return f"{row.host.name} {state} {each.session} {each.prompt.raw} {each.cwd.raw} {each.driver.raw}"

    # Keys.

    def _pressed(self, event: events.Key) -> None:
        self._dash.said = ""
        if self._asks:
            self._answers(event)
        elif self._step(event.key, len(self._found)):
            pass
        elif self._searches:
            self._types_words(event)
        elif event.key in _SEARCH:
            self._searches = True
        elif action := _ACTIONS.get(event.key):
            self._acts(action)
        self._dash.marked = _key(self._marked)

    def _acts(self, action: str) -> None:
        marked = self._marked
        if isinstance(marked, HostWatch) and marked.up and action == "open":
            action = "new"
        if action == "leave":
            self.app.exit(None)
        elif action == "close":
            self.below, self._sought = (), self._sought if self.below else ""
            self._dash.sought = self._sought
        elif isinstance(marked, HostWatch) and action not in ("open", "new"):
            why = "has no sessions: n starts one" if marked.up else "does not answer. Enter logs in"
            self._dash.said = f"{one_line(marked.name)} {why}."
        elif marked is not None and action in _QUESTIONS:
            self._asks, self._asked, self._typed = action, marked, _proposed(action, marked)
        elif marked is not None:
            self._act(action, marked, "")

    def _answers(self, event: events.Key) -> None:
        asks, given = self._asks, self._typed.strip()
        if event.key == "escape":
            self._asks = ""
        elif event.key != "enter":
            self._typed = typed(self._typed, event)
        else:
            self._asks = ""
            if self._asked is not None and (asks != "stop" or given.lower() == "yes"):
                self._act(asks, self._asked, given)

    def _types_words(self, event: events.Key) -> None:
        if event.key in ("enter", "escape"):
            self._searches = False
            self._sought = "" if event.key == "escape" else self._sought
        elif (sought := typed(self._sought, event)) != self._sought:
            self._search(sought)
        self._dash.sought = self._sought

    def _pasted(self, text: str) -> None:
        if self._asks and self._asks != "stop":
            self._typed += text
        elif self._searches:
            super()._pasted(text)

    # What is drawn.

    def _draw(self) -> None:
        palette, now, found = self._palette, time.monotonic(), self._found
        width, height = max(20, self.size.width), max(3, self.size.height - _FRAME_LINES)
        below = [Text(cut(each, width), style=palette.dim, no_wrap=True) for each in self.below][-(height // 2) :]
        if below:
            below.insert(0, Text("─" * width, style=palette.dim))
        hosts = min(_MAX_HOST, max((cell_len(one_line(each.name)) for each in self._dash.hosts), default=0))
        rows: list[Text] = []
        for place in self._window(len(found), max(1, height - len(below))):
            entry, marked = found[place], place == self._at
            line = self._row(marked=marked)
            rows.append(line.append_text(_entry_line(entry, width - 2, hosts, palette, now, marked=marked)))
        if not rows:
            none = "No session fits what you typed." if self._sought else "No hosts."
            rows = [Text(f"  {none}", style=palette.dim)]
        gap = [Text()] * max(1, height - len(rows) - len(below) + 1)
        self.update(Group(self._title(), Text(), *rows, *gap, *below, self._foot()))

    def _title(self) -> Text:
        palette, dash = self._palette, self._dash
        sessions = [each for each in self._rows if isinstance(each, DashRow)]
        asking, up = sum(each.asks for each in sessions), sum(each.up for each in dash.hosts)
        title = Text("ccb dash", style="bold", no_wrap=True, overflow="ellipsis")
        if asking:
            title.append(f"  {asking} wait{'s' if asking == 1 else ''} for you", style=f"bold {palette.warn}")
        hosts = f"{up} of {len(dash.hosts)} hosts" if up < len(dash.hosts) else _counted(up, "host")
        title.append(f"  {hosts} · {_counted(len(sessions), 'session')}", style=f"not bold {palette.dim}")
        if self._searches or self._sought:
            caret = CARET if self._searches else ""
            title.append(f"   /{one_line(self._sought)}{caret}", style=f"not bold {palette.accent}")
        return title

    def _foot(self) -> Text:
        palette, asked = self._palette, self._asked
        if self._asks and asked is not None:
            host, name = (asked.host, asked.title) if isinstance(asked, DashRow) else (asked, "")
            words = _QUESTIONS[self._asks].format(host=one_line(host.name), name=cut(name, 40))
            return Text(words, style=palette.accent).append(f"{one_line(self._typed)}{CARET}", style="bold")
        said = self._dash.said
        return Text(one_line(said) or _KEYS, style=palette.warn if said else palette.dim, overflow="ellipsis")


def _proposed(action: str, marked: Entry) -> str:
    """Return what stands in the line before the person types."""
    if isinstance(marked, HostWatch):
        return "~" if action == "new" else ""
    return {"rename": marked.session.prompt.cell, "new": marked.session.cwd.cell}.get(action, "")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _key(entry: Entry | None) -> tuple[str, str] | None:
    if entry is None:
        return None
    return entry.key if isinstance(entry, DashRow) else (entry.name, "")


def _entry_line(entry: Entry, width: int, hosts: int, palette: Palette, now: float, *, marked: bool) -> Text:
    if isinstance(entry, HostWatch):
        return _host_line(entry, hosts, palette)
    row, line = entry.session, Text(no_wrap=True, overflow="ellipsis")
    stale = not entry.host.up
    dim, warn = f"not bold {palette.dim}", f"not bold {palette.warn}"
    colour = {ASKS: f"bold {palette.warn}", WORKS: f"not bold {palette.good}"}.get(row.state, dim)
    line.append(_cell(_STATES.get(row.state, row.state), _STATE_CELLS), style=dim if stale else colour)
    line.append(f"  {_cell(one_line(entry.host.name), hosts)}  ", style=dim)
    if width >= _NARROW:
        line.append(f"{age_text(entry.idle_s(now)):>{_AGE_CELLS}}  ", style=dim)
    if width >= _WIDE:
        line.append(f"{dollars(entry.usd) if entry.usd else '':>{_COST_CELLS}}  ", style=dim)
    end = f"  {age_text(now - entry.host.heard_at)} old" if stale else _driver(entry) if width >= _WIDE else ""
    room = width - line.cell_len
    title = room * 2 // 5 if width >= _NARROW else room - cell_len(end)
    line.append(_cell(row.prompt.cell or "(no prompt yet)", title), style=dim if stale else "bold" if marked else "")
    if (left := room - title - 2 - cell_len(end)) > _MIN_LAST:
        line.append(f"  {_cell(row.last.cell, left)}", style=warn if entry.asks and not stale else dim)
    return line.append(end, style=warn if stale else dim)


def _host_line(host: HostWatch, hosts: int, palette: Palette) -> Text:
    state = "login" if host.needs_person else "silent" if host.problem else "" if host.up else "…"
    line = Text(_cell(state, _STATE_CELLS), style=f"not bold {palette.dim}", no_wrap=True, overflow="ellipsis")
    line.append(f"  {_cell(one_line(host.name), hosts)}  ")
    why = host.problem or ("no sessions" if host.up else "connecting")
    why = f"{why}. Enter logs in." if host.needs_person else why
    return line.append(one_line(why), style=palette.bad if host.problem else palette.dim)


def _driver(entry: DashRow) -> str:
    """Return who drives: the name without the process."""
    row = entry.session
    if not row.driver.raw or not row.alive:
        return ""
    name = cut(row.driver.cell.split(" ")[0], _MAX_DRIVER)
    return f"  {name}{' away' if row.driver_away else ''}"


def _cell(text: str, width: int) -> str:
    text = cut(text, width)
    return text + " " * (width - cell_len(text))
