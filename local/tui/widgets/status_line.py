"""The status line and the todo in progress."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.todo_list import IN_PROGRESS, TodoList

from ...session.session_client import LinkState
from ...terminal.keymap import DEFAULT_KEYMAP, Keymap
from ...transcript.session_facts import CAGED, UsageTotals, _used, mode_in_force, mode_name
from ..rendering.themes import Palette
from ..rendering.tool_output import TODO_MARKS, todo_row

_GAP = "  "
_MIN_SHORTENED = 4
_MIN_PLACE = 12
_MAX_BRANCH = 30
_SLOW_S = 0.5  # a round trip from which the connection is called slow
_MIN_PLACE_BESIDE_HINT = 16
_MAX_PATH_PARTS = 16  # of a shortened path, at its end
_SHORT_MODES = {"acceptEdits": "edits"}
_CAGES = {"read-only cage": "ro cage", "workspace cage": "ws cage"}


@dataclass(frozen=True)
class PlaceFacts:
    """Where the agent works. `branch`: that of git, "" if it is not known."""

    host: str
    path: str
    branch: str = ""


@dataclass(frozen=True)
class LinkFacts:
    """`unanswered_s`: seconds without an answer of the host. `round_trip_s`: None if it is not known."""

    state: LinkState
    unanswered_s: float = 0.0
    round_trip_s: float | None = None


@dataclass(frozen=True)
class Busy:
    """The turn that runs, and what the agent waits for in it: an answer of the person, or the model, which is asked
    again in `again_s` seconds if it failed."""

    seconds: float
    asking: bool = False
    for_model: bool = False
    interrupted: bool = False
    again_s: float | None = None

    @property
    def text(self) -> str:
        if self.again_s is not None:
            return f"asks the model again{f' in {self.again_s:.0f} s' if self.again_s >= 1 else ''}"
        return f"{'waits for the model' if self.for_model else 'working'} {self.seconds:.0f} s"


@dataclass(frozen=True)
class StatusFacts:
    """Everything that the line shows. `hint` answers a key. `card_waits`: what a card without the focus asks for.
    `waiting`: how many prompts wait for the end of the turn, and how many steer. `keys`: the mode of vim's keys.
    `own`: what a command of the person says."""

    place: PlaceFacts
    model: str
    mode: str
    link: LinkFacts
    totals: UsageTotals
    busy: Busy | None
    hint: str = ""
    card_waits: str = ""
    more_below: bool = False
    sandbox: str = ""
    tasks: int = 0
    waiting: tuple[int, int] = (0, 0)
    keys: str = ""
    own: str = ""


@dataclass(frozen=True)
class _StatusEntry:
    """One entry of the line, and its short form for a narrow screen."""

    text: str
    short: str
    style: str


def status_text(facts: StatusFacts, palette: Palette, width: int, keymap: Keymap = DEFAULT_KEYMAP) -> Text:
    """Draw the line, the most important entries first. In little room these are shortened before one goes."""
    mark, tone = ("◌", palette.warn) if facts.link.unanswered_s else _link_mark(facts.link.state, palette)
    current = _current_entries(facts, palette, tone, keymap)
    keys = f" {facts.keys} " if facts.keys else ""
    room = width - len(mark) - 1 - (cell_len(keys) + 1 if keys else 0)
    places = _places(facts.place)
    shown, least = _shared_out(facts, palette, current, room, cell_len(places[-1]))
    left = room - sum(_cells(text) for text, _ in shown)
    room_for_place = min(left, max(least, width // 2))
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{mark} ", style=tone)
    if keys:
        line.append(keys, style=f"reverse {palette.dim if facts.keys.startswith('INSERT') else palette.accent}")
        line.append(" ")
    line.append(_place_within(places, facts, room_for_place), style="bold")
    trip = f"{facts.link.round_trip_s * 1000:.0f} ms" if facts.link.round_trip_s is not None else ""
    totals, branch = facts.totals, _cut(facts.place.branch, _MAX_BRANCH)
    own = _cut(facts.own, max(_MIN_PLACE, width - line.cell_len - sum(_cells(text) for text, _ in shown) - len(_GAP)))
    others = [own, branch, one_line(facts.model), totals.context_text, *_used(totals), trip]
    for text, style in shown + [(text, palette.dim) for text in others]:
        if text and line.cell_len + _cells(text) <= width:  # otherwise the next one may fit
            line.append(_GAP, style=palette.dim)
            line.append(text, style=style)
    return line


def _place_within(places: list[str], facts: StatusFacts, room: int) -> str:
    fitting = next((each for each in places if cell_len(each) <= room), "")
    return fitting or _squeezed(facts.place, room)


def _shared_out(
    facts: StatusFacts, palette: Palette, current: list[_StatusEntry], room: int, shortest_place: int
) -> tuple[list[tuple[str, str]], int]:
    in_force = mode_in_force(facts.mode, facts.sandbox)
    mode = _mode_entry(in_force, palette)
    first = _cells(current[0].short) if current else 0
    # A hint answers a key and disappears after seconds: until then it may take the room of the mode.
    beside = _MIN_PLACE_BESIDE_HINT if facts.hint else max(_MIN_PLACE, room - _cells(mode.short) - first)
    least = min(shortest_place, beside)
    left = room - least
    shown: list[tuple[str, str]] = []
    if _cells(mode.short) <= left - (first if facts.hint else 0):
        shown.append((mode.text if _cells(mode.text) <= left - first else mode.short, mode.style))
        left -= _cells(shown[-1][0])
    if not facts.sandbox or (in_force == CAGED and facts.sandbox in _CAGES):  # the mode says it
        return shown + _fitting(current, left), least
    # The cage is the first to be left out, but stands beside the mode, also when other entries come and go.
    text = one_line(facts.sandbox).partition(":")[0]
    style = palette.dim if text in _CAGES else palette.warn
    cage = _StatusEntry(text, _CAGES.get(text, _cut(text, _MIN_PLACE)), style)
    fitted = _fitting([*current, cage], left)
    if fitted and fitted[-1][0] in (cage.text, cage.short):
        fitted.insert(0, fitted.pop())
    return shown + fitted, least


def state_in_words(facts: StatusFacts) -> str:
    """Return what the session does for somebody who looks elsewhere, "" for nothing."""
    if facts.link.unanswered_s:
        return "no answer"
    if facts.link.state not in (LinkState.CONNECTED, LinkState.FENCED):
        return str(facts.link.state.value)
    if facts.busy is None:
        return ""
    return "waits for you" if facts.busy.asking else "waits for the model" if facts.busy.for_model else "working"


def _fitting(entries: list[_StatusEntry], left: int) -> list[tuple[str, str]]:
    """Choose the long form, the short form or neither of each entry, so that all fit. The first one is cut."""
    chosen: list[tuple[str, str]] = []
    for entry in entries:
        text = next((each for each in (entry.text, entry.short) if _cells(each) <= left), "")
        if not text and entry is entries[0] and left >= _MIN_SHORTENED + len(_GAP):
            text = set_cell_size(entry.short, left - len(_GAP) - 1).rstrip() + "…"
        if text:
            chosen.append((text, entry.style))
            left -= _cells(text)
    return chosen


def _cells(text: str) -> int:
    return len(_GAP) + cell_len(text)


def _link_mark(link: LinkState, palette: Palette) -> tuple[str, str]:
    return {
        LinkState.CONNECTED: ("●", palette.good),
        LinkState.CONNECTING: ("◌", palette.warn),
        LinkState.RECONNECTING: ("◌", palette.warn),
        LinkState.LOST: ("✗", palette.bad),
        LinkState.NEEDS_PERSON: ("!", palette.warn),
        LinkState.FENCED: ("◇", palette.warn),
        LinkState.CLOSED: ("○", palette.dim),
    }[link]


def _link_entries(link: LinkFacts, palette: Palette, tone: str) -> list[_StatusEntry]:
    if link.unanswered_s:
        silence = f"no answer for {link.unanswered_s:.0f} s"
        return [_StatusEntry(silence, silence, tone)]
    if link.state is not LinkState.CONNECTED:
        return [_StatusEntry(link.state.value, link.state.value, tone)]
    if link.round_trip_s is not None and link.round_trip_s >= _SLOW_S:
        return [_StatusEntry(f"slow connection, {link.round_trip_s:.1f} s", "slow", palette.warn)]
    return []


def _current_entries(facts: StatusFacts, palette: Palette, tone: str, keymap: Keymap) -> list[_StatusEntry]:
    entries = []
    if facts.hint:
        entries.append(_StatusEntry(facts.hint, facts.hint, palette.warn))
    if facts.card_waits:
        tab = keymap.name("approval-tab")
        entries.append(_StatusEntry(f"{facts.card_waits} waits: {tab}", f"{tab}: answer", palette.warn))
    entries += _link_entries(facts.link, palette, tone)
    queued, steering = facts.waiting
    if queued or steering:
        both = ", ".join(f"{count} {what}" for count, what in ((steering, "steering"), (queued, "queued")) if count)
        entries.append(_StatusEntry(both, both.replace(" steering, ", "+"), palette.dim))
    entries += _busy_entries(facts, palette, keymap)
    if facts.tasks:
        count = "1 task" if facts.tasks == 1 else f"{facts.tasks} tasks"
        entries.append(_StatusEntry(f"{count} in the background: /tasks", count, palette.accent))
    if facts.more_below:
        entries.append(_StatusEntry("↓ more below", "↓ more", palette.warn))
    return entries


def _busy_entries(facts: StatusFacts, palette: Palette, keymap: Keymap) -> list[_StatusEntry]:
    busy = facts.busy
    if busy is None or (busy.asking and facts.card_waits and not busy.interrupted):
        return []
    if busy.interrupted:
        return [_StatusEntry("interrupting…", "interrupting…", palette.warn)]
    if busy.asking:
        return [_StatusEntry("waits for an answer", "waits", palette.warn)]
    answers = facts.link.state is LinkState.CONNECTED and not facts.link.unanswered_s
    esc = f", {keymap.name('interrupt')} interrupts" if answers else ""
    return [_StatusEntry(busy.text + esc, busy.text, palette.accent)]


def _mode_entry(mode: str, palette: Palette) -> _StatusEntry:
    text = mode_name(mode)
    short = _SHORT_MODES.get(mode, _cut(text, _MIN_PLACE))
    style = {"bypassPermissions": palette.bad, "default": palette.dim}.get(mode, palette.warn)
    return _StatusEntry(text, short, style)


def _places(place: PlaceFacts) -> list[str]:
    host, path = one_line(place.host), one_line(place.path)
    short, parts = _short_host(host), path.rstrip("/").split("/")
    ends = ["…/" + "/".join(parts[begin:]) for begin in range(max(2, len(parts) - _MAX_PATH_PARTS), len(parts))]
    return [f"{host}:{path}", f"{short}:{path}", *(f"{short}:{end}" for end in ends)]


def _short_host(host: str) -> str:
    """Return `devbox` for `alice@devbox.example.com`, `web on devbox` for a container; an IP address stays."""
    named = re.fullmatch(r"((?:\S+ on )?)(?:\S*@)?([^\s@]+)", host)
    if named is None:
        return host
    with suppress(ValueError):
        ip_address(named[2].strip("[]"))
        return named[1] + named[2]
    return named[1] + named[2].partition(".")[0]


def _squeezed(place: PlaceFacts, room: int) -> str:
    host, path = _short_host(one_line(place.host)), one_line(place.path)
    directory = path.rstrip("/").rpartition("/")[2] or path
    half = (room - 1) // 2
    host = _cut(host, max(half, room - 1 - cell_len(directory)))
    return f"{host}:{_cut(directory, room - 1 - cell_len(host))}"


def _cut(text: str, room: int) -> str:
    if cell_len(text) <= room:
        return text
    for kept in range(room - 1, 0, -1):
        cut = text[: kept - kept // 2] + "…" + text[len(text) - kept // 2 :]
        if cell_len(cut) <= room:
            return cut
    return "…"


class StatusLine(Static):
    """The line at the bottom of the screen."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 1; background: $surface; }"

    _shown: Text | None = None

    def show(self, facts: StatusFacts, palette: Palette, keymap: Keymap) -> None:
        """Draw the line, if it differs from the one on the screen."""
        text = status_text(facts, palette, max(20, self.size.width), keymap)
        if text != self._shown or text.spans != self._shown.spans:
            self._shown = text
            self.update(text, layout=False)  # it always takes one line


_MAX_ROWS = 8


class TodoPanel(Static):
    """Shows the todo in progress while one is open, or with `whole` all of them. `key` shows the rest."""

    DEFAULT_CSS = """
    TodoPanel { height: auto; padding: 0 1; }
    TodoPanel.none { display: none; }
    """

    def __init__(self, key: str) -> None:
        super().__init__(id="todos", classes="none")
        self._key = key
        self._shown: tuple[TodoList, Palette, bool] | None = None
        self.whole = False

    def show(self, todos: TodoList, palette: Palette) -> None:
        now = (todos, palette, self.whole)
        if now != self._shown:
            self._shown = now
            self.set_class(not todos.open, "none")
            if todos.open:
                self.update(self._rows(todos, palette) if self.whole else self._line(todos, palette))

    def toggle(self) -> bool:
        if self._shown is None or not self._shown[0].open:
            return False
        self.whole = not self.whole
        self.show(*self._shown[:2])
        return True

    def _line(self, todos: TodoList, palette: Palette) -> Text:
        item = todos.items[todos.current]
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{TODO_MARKS.get(item.status, '☐')} ", style=palette.accent)
        text.append(one_line(item.active_form if item.status == IN_PROGRESS and item.active_form else item.subject))
        return text.append(f"   {todos.done} of {len(todos.items)} done, {self._key}", style=palette.dim)

    def _rows(self, todos: TodoList, palette: Palette) -> Text:
        count = len(todos.items)
        first = max(0, min(todos.current - _MAX_ROWS // 2, count - _MAX_ROWS))
        shown = todos.items[first : first + _MAX_ROWS]
        rows = [todo_row(item.status, item.subject, palette) for item in shown]
        if left_out := count - len(shown):
            rows.append(Text(f"… {left_out} more, {todos.done} of {count} done", style=palette.dim))
        return Text("\n", no_wrap=True, overflow="ellipsis").join(rows)
