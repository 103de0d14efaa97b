"""Lists above the composer: what they have in common, the hosts, the models, the permission rules and the help."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import age_text, one_line
from ccb.tunnel.providers.model_traits import ModelTraits
from ccb.tunnel.wire.model_facts import may_be_model, provider_of

from ...commands.session_table import cut
from ...providers.known_models import ModelOffer, price_text, window_text
from ...slash_commands.about_session import KEPT, SESSION, HeldRule
from ...slash_commands.registry import Picker, ReplyRow
from ...slash_commands.this_laptop import RecentHost
from ...terminal.keymap import DEFAULT_KEYMAP, Keymap
from ..rendering.themes import Palette, palette_in
from ..widgets.painting import CARET

_STEPS = {"up": -1, "down": 1}
_LETTERS = {"k": -1, "j": 1}
FRAME_CELLS = 6  # cells of the screen beside the text of a panel
TYPING_S = 1.0  # after a letter that means nothing in a list, another one may be meant for the input, too
FOR_THE_INPUT = "Esc closes this list and goes back to the input."


class PanelClosed(Message):
    """The person has read enough of a panel or a page."""


def typed(text: str, event: events.Key) -> str:
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
        steps = {**_STEPS, "pageup": -self.MAX_ROWS, "pagedown": self.MAX_ROWS, **(_LETTERS if self.LETTERS else {})}
        self._at = min(max(self._at + steps.get(key, 0), 0), max(0, rows - 1))
        return steps.get(key, 0)

    def _window(self, rows: int, room: int) -> range:
        first = min(max(0, self._at - room // 2), max(0, rows - room))
        return range(first, min(first + room, rows))

    def _room(self, frame: int) -> int:
        return max(3, min(self.MAX_ROWS, self.app.size.height - frame))

    @property
    def _palette(self) -> Palette:
        return palette_in(self.app)

    def _row(self, *, marked: bool) -> Text:
        row = Text(no_wrap=True, overflow="ellipsis")
        return row.append("› " if marked else "  ", style=f"bold {self._palette.accent}")


Row = TypeVar("Row")


class SearchedPanel(ListPanel, Generic[Row]):
    """A list that is narrowed by typing."""

    LETTERS = False

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__()
        self._rows = rows
        self._sought = ""

    def words_of(self, row: Row) -> str:
        """Return the text of a row that is searched."""
        raise NotImplementedError

    @property
    def _fitting(self) -> list[Row]:
        words = self._sought.lower().split()
        return [row for row in self._rows if all(word in self.words_of(row).lower() for word in words)]

    @property
    def _found(self) -> list[Row]:
        """The rows of which one is marked."""
        return self._fitting

    @property
    def _marked(self) -> Row | None:
        found = self._found
        return found[self._at] if self._at < len(found) else None

    def _search(self, text: str) -> None:
        self._sought, self._at = text, 0

    def _pasted(self, text: str) -> None:
        self._search(self._sought + text)

    def _head(self, title: str) -> Text:
        head = Text(title, style="bold", no_wrap=True, overflow="ellipsis")
        return head.append(f"   {one_line(self._sought)}{CARET}", style=f"not bold {self._palette.accent}")

    def _count(self, noun: str) -> str:
        count = f"{len(self._fitting)} of {len(self._rows)}" if self._sought else str(len(self._rows))
        return f"{count} {noun}{'' if count == '1' else 's'}"


_CHOICE_FRAME = 6


class ChoicePanel(SearchedPanel[ReplyRow]):
    """Rows of which one is chosen; the `current` one is marked first. `choose` is called with the chosen line."""

    def __init__(self, picker: Picker, choose: Callable[[str], object]) -> None:
        super().__init__(picker.rows)
        self._picker, self._choose = picker, choose
        self._at = next((place for place, row in enumerate(picker.rows) if row.name == picker.current), 0)

    def words_of(self, row: ReplyRow) -> str:
        return row.line

    def _pressed(self, event: events.Key) -> None:
        if event.key == "escape":
            self.post_message(PanelClosed())
        elif event.key == "enter":
            if self._marked is not None:
                self._choose(self._marked.choose)
        elif not self._step(event.key, len(self._found)) and (sought := typed(self._sought, event)) != self._sought:
            self._search(sought)

    def _draw(self) -> None:
        palette, picker = self._palette, self._picker
        found, lines = self._found, [self._head(picker.title)]
        after = [Text(one_line(each), style=palette.dim) for each in picker.after.splitlines()]
        for number in self._window(len(found), self._room(_CHOICE_FRAME + len(after))):
            line = self._row(marked=number == self._at).append(one_line(found[number].name))
            now = "  now" if found[number].name == picker.current else ""
            lines.append(line.append(f"{now}  {one_line(found[number].text)}".rstrip(), style=palette.dim))
        keys = Text(f"Enter {picker.does} · Esc closes · type to search", style=palette.dim)
        self.update(Group(*lines, *after, keys))


_HOST_FRAME = 11
_HOST_KEYS = "Enter: sessions of this host, the command for another · Esc closes"


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
        for number in self._window(len(self._hosts), self._room(_HOST_FRAME)):
            each, marked = self._hosts[number], number == self._at
            used = "now" if each.here else age_text(each.ago_s) if each.ago_s is not None else ""
            line = self._row(marked=marked).append(f"{used:>5}  ", style=palette.dim)
            line.append(f"{one_line(each.host)}:{one_line(each.directory)}", style="bold" if marked else "")
            state = f"here, {each.state}" if each.here else each.state
            lines.append(line.append(f"  {state}", style=palette.good if each.state else palette.dim))
        if len(self._hosts) == 1:
            lines.append(Text("  No other host: sessions leave their trace with their first answer.", palette.dim))
        self.update(Group(*lines, Text(_HOST_KEYS, style=palette.dim)))


_MODEL_FRAME = 13
_NAME_CELLS, _MIN_MEANING = 44, 10
_SOME, _WIDE = 70, 114  # cells from which the provider is shown, and what the model can
_MODEL_KEYS = "$ for a million tokens · {model-take!} takes both · Left, Right: effort · Esc closes"
_TYPED = "  type to search, or the id of another model"
_TURNS = {"left": -1, "right": 1}
_OWN_EFFORT = "default"


class ModelPanel(SearchedPanel[ModelOffer]):
    """The models that the session may use, and the effort. `choose` is called with the name that the person takes, and
    with the level if they have changed it, else "". A name that no row has is taken as it is typed."""

    MAX_ROWS = 12

    def __init__(
        self, offers: Sequence[ModelOffer], current: str, effort: str, choose: Callable[[str, str], object]
    ) -> None:
        super().__init__(offers)
        self._current, self._effort, self._choose = current, effort, choose
        self._level = effort  # what the person wants, "" for the model's own
        self._notes: Sequence[str] = ()
        self._at = next((place for place, each in enumerate(offers) if each is self._in_force), 0)

    def show(self, offers: Sequence[ModelOffer], notes: Sequence[str]) -> None:
        """Show newer lists; the mark stays where it is. `notes` say which providers have not answered."""
        marked = self._marked
        self._rows, self._notes = offers, notes
        found = [each.name for each in self._found]
        at = found.index(marked.name) if marked is not None and marked.name in found else self._at
        self._at = min(at, max(0, len(found) - 1))
        self._draw()

    def words_of(self, row: ModelOffer) -> str:
        return f"{row.name} {row.means} {row.title}"

    @property
    def _found(self) -> list[ModelOffer]:
        found, name = self._fitting, self._sought.strip()
        is_new = may_be_model(name) and all(each.name != name for each in found)
        return [*found, ModelOffer(name, provider_of(name), "", ModelTraits(), 0, None, None)] if is_new else found

    @property
    def _in_force(self) -> ModelOffer | None:
        by_name = (each for each in self._rows if each.name == self._current)
        return next(by_name, next((each for each in self._rows if each.means and each.means == self._current), None))

    def _pressed(self, event: events.Key) -> None:
        marked = self._marked
        if event.key == "escape":
            self.post_message(PanelClosed())
        elif self.keymap.has("model-take", event.key):
            if marked is not None:
                name = self._current if marked is self._in_force else marked.name
                kept = self._level == self._effort or not marked.efforts
                self._choose(name, "" if kept else self._level or _OWN_EFFORT)
        elif event.key in _TURNS and marked is not None:
            levels = ["", *marked.efforts]
            at = levels.index(marked.effort(self._level))
            if 0 <= (turned := at + _TURNS[event.key]) < len(levels):
                self._level = levels[turned]
        elif not self._step(event.key, len(self._found)) and (text := typed(self._sought, event)) != self._sought:
            self._search(text)

    def _draw(self) -> None:
        palette, found = self._palette, self._found
        width = max(20, self.size.width or self.app.size.width - FRAME_CELLS)
        shown = self._window(len(found), self._room(_MODEL_FRAME + len(self._notes)))
        lines = [self._line(found[place], width, marked=place == self._at) for place in shown]
        if not found:
            lines = [Text("  No model fits what you typed.", style=palette.dim)]
        if not self._sought:
            lines.append(Text(_TYPED, style=palette.dim, no_wrap=True, overflow="ellipsis"))
        if self._marked is not None:
            lines.append(self._efforts(self._marked, width))
        notes = [Text(cut(one_line(each), width), style=palette.warn, no_wrap=True) for each in self._notes]
        keys = Text(f"{self._count('model')}, {self.keymap.filled(_MODEL_KEYS)}", style=palette.dim)
        self.update(Group(self._head("Models"), *lines, *notes, keys))

    def _line(self, offer: ModelOffer, width: int, *, marked: bool) -> Text:
        palette, line = self._palette, self._row(marked=marked)
        now = "  now" if offer is self._in_force else ""
        provider = f"  {offer.provider:<12}" if width >= _SOME else ""
        room = min(_NAME_CELLS, max(16, width - 32 - len(provider)))
        left = room - len(now)
        short = max((cell_len(each.name) for each in self._rows if each.means), default=0) if offer.means else 0
        name = cut(one_line(offer.name), left)
        name += " " * (min(short, left) - cell_len(name))
        means = offer.means if any(each is offer for each in self._rows) else "as it is typed"
        line.append(name, style="bold" if marked else "not bold")
        left -= cell_len(name)
        if means and left >= _MIN_MEANING:
            line.append(f"  {cut(one_line(means), left - 2)}", style=f"not bold {palette.dim}")
        line.append(now, style=f"not bold {palette.good}")
        line.append(" " * (room + 2 - line.cell_len))
        prices = f"$ {price_text(offer.input_price)} / {price_text(offer.output_price)}"
        prices = prices if offer.input_price is not None else ""
        can = f"  {offer.can}" if width >= _WIDE else ""
        facts = f"  {window_text(offer.window):>6}  {prices:<17}{provider}{can}"
        return line.append(facts, style=f"not bold {palette.dim}")

    def _efforts(self, offer: ModelOffer, width: int) -> Text:
        palette, chosen = self._palette, offer.effort(self._level)
        line = Text("Effort", style=palette.dim)
        if not offer.efforts:
            return line.append(f"  {one_line(offer.name)} has no levels")
        for level in ("", *offer.efforts):
            is_chosen = level == chosen
            name = f" {'›' if is_chosen else ' '} {level or _OWN_EFFORT}"
            line.append(name, style=f"bold {palette.accent}" if is_chosen else palette.dim)
        return line if line.cell_len <= width else Text(f"Effort  ‹ {chosen or _OWN_EFFORT} ›", style=palette.accent)


_RULE = re.compile(r"[A-Za-z_][A-Za-z0-9_.*-]*(\([^\S\n]*\S.*\))?")
_BEHAVIORS = {"deny": "denied", "ask": "asked", "allow": "allowed"}  # those that deny first: they win
_SOURCES = {
    "userSettings": "your settings",
    "projectSettings": "the project",
    KEPT: "always here",
    "policySettings": "the organisation",
    "flagSettings": "--settings",
    "cliArg": "the command line",
    "command": "a command",
    "skills": "a skill",
    SESSION: "this session",
}
_WHERE = {SESSION: "in this session", KEPT: "always here"}
_KINDS = tuple((behavior, where) for where in (SESSION, KEPT) for behavior in ("allow", "ask", "deny"))
_RULE_FRAME = 12
_RULE_KEYS = "{rule-add!} adds a rule · {rule-remove!} removes one of yours · Up, Down · Esc closes"


class RulePanel(ListPanel):
    """The permission rules that hold, those of the person to be changed: `change` adds one (True) or removes it."""

    def __init__(
        self,
        place: str,
        mode: str,
        rules: Sequence[HeldRule],
        change: Callable[[RulePanel, HeldRule, bool], Awaitable[None]],
        marked: str = "",
    ) -> None:
        super().__init__()
        self._change = change
        self._title = Text(f"Permission rules on {place}", style="bold", no_wrap=True, overflow="ellipsis")
        self._place = place
        self._mode = mode
        self._rules = _sorted(rules)
        self._at = next((at for at, each in enumerate(self._rules) if each.rule == marked), 0)
        self._typed: str | None = None  # the new rule, None while none is typed
        self._kind = 0
        self._asks = False  # whether the marked rule is to be removed
        self._hint = ""

    def show(self, rules: Sequence[HeldRule], hint: str) -> None:
        """Show the rules that hold now, and what has come of a change."""
        self._rules, self._hint = _sorted(rules), hint
        self._at = min(self._at, max(0, len(self._rules) - 1))
        self._draw()

    def fail(self, why: str) -> None:
        self._hint = one_line(why)
        self._draw()

    def _pressed(self, event: events.Key) -> None:
        self._hint = ""
        if self._typed is not None:
            self._type(self._typed, event)
        elif self._asks:
            self._asks = False
            if event.key in ("y", "enter"):
                self.run_worker(self._change(self, self._rules[self._at], False))
        elif event.key in ("escape", "q"):
            self.post_message(PanelClosed())
        elif self.keymap.pressed("rule-add", event.key, event.character):
            self._typed = ""
        elif self.keymap.pressed("rule-remove", event.key, event.character) and self._rules:
            own = self._rules[self._at].is_own
            self._asks, self._hint = own, "" if own else "This rule is not yours to remove here: it comes from a file."
        else:
            self._step(event.key, len(self._rules))

    def _type(self, text: str, event: events.Key) -> None:
        if event.key == "escape":
            self._typed = None
        elif event.key in _STEPS:
            self._kind = (self._kind + _STEPS[event.key]) % len(_KINDS)
        elif event.key != "enter":
            self._typed = typed(text, event)
        elif _RULE.fullmatch(rule := text.strip()):
            behavior, where = _KINDS[self._kind]
            self._typed = None
            self.run_worker(self._change(self, HeldRule(behavior, where, rule), True))
        else:
            self._hint = "A rule is Tool or Tool(pattern), such as Bash(npm test *) or Edit(src/**)."

    def _pasted(self, text: str) -> None:
        if self._typed is not None:
            self._typed += text

    def _draw(self) -> None:
        palette = self._palette
        head = self._title.copy().append(f"   mode {one_line(self._mode)}", style=f"not bold {palette.dim}")
        shown = self._window(len(self._rules), self._room(_RULE_FRAME))
        lines = [self._line(self._rules[number], marked=number == self._at) for number in shown]
        none = Text("  No rule holds: what is not harmless is asked.", style=palette.dim)
        self.update(Group(head, *(lines or [none]), *self._foot()))

    def _line(self, held: HeldRule, *, marked: bool) -> Text:
        palette, line = self._palette, self._row(marked=marked)
        style = {"deny": palette.bad, "ask": palette.warn, "allow": palette.good}.get(held.behavior, palette.dim)
        line.append(f"{_BEHAVIORS.get(held.behavior, one_line(held.behavior)):<8}", style=style)
        line.append(one_line(held.rule), style="bold" if marked else "")
        source = _SOURCES.get(held.source, one_line(held.source) or "ccb")
        return line.append(f"  {' · '.join(filter(None, (source, held.in_words)))}", style=palette.dim)

    def _foot(self) -> list[Text]:
        palette, lines = self._palette, []
        if self._typed is not None:
            behavior, where = _KINDS[self._kind]
            rule = f"{one_line(self._typed)}{CARET}"
            lines.append(Text.assemble((f"{behavior} {_WHERE[where]}: ", palette.accent), (rule, "bold")))
            kept = f"kept on this laptop for {self._place}" if where == KEPT else "gone with the session"
            keys = f"Up, Down: allow, ask, deny, in this session or always · Enter adds it ({kept}) · Esc"
            lines.append(Text(keys, style=palette.dim))
        elif self._asks:
            held = self._rules[self._at]
            asked = f"Remove “{held.behavior} {one_line(held.rule)}”, {_SOURCES[held.source]}? "
            lines.append(Text.assemble((asked, palette.warn), ("y removes it · any other key keeps it", palette.dim)))
        if self._hint:
            lines.append(Text(self._hint, style=palette.warn))
        return lines or [Text(self.keymap.filled(_RULE_KEYS), style=palette.dim)]


def _sorted(rules: Sequence[HeldRule]) -> list[HeldRule]:
    order = [*_BEHAVIORS]
    return sorted(rules, key=lambda each: order.index(each.behavior) if each.behavior in order else len(order))


HelpSection = tuple[str, Sequence[tuple[str, str]]]
"""A heading with its rows: a name, such as that of a key or a command, and what is said of it, in one or more lines."""

_KEY_CELLS = 32


class HelpPanel(VerticalScroll, can_focus=True):
    """Lists `sections` below a `title`. Escape and Enter close it. `sought` is what it is narrowed to at first."""

    DEFAULT_CSS = """
    HelpPanel {
        height: auto; max-height: 60vh; border: round $accent; padding: 0 1; background: $background;
    }
    HelpPanel Static { height: auto; }
    """

    def __init__(self, sections: Sequence[HelpSection], title: str, sought: str = "") -> None:
        super().__init__()
        self._title = title
        self._sections = sections
        self._sought = sought
        self._page = Static()

    def compose(self) -> ComposeResult:
        yield self._page

    def on_mount(self) -> None:
        self._draw()

    def show(self, sections: Sequence[HelpSection], title: str) -> None:
        self._sections, self._title = sections, title
        if self.is_mounted:
            self._draw()

    def turn(self, direction: int) -> None:
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
        palette = palette_in(self.app)
        title, is_list = one_line(self._title), sum(len(rows) for _, rows in self._sections) > 1
        sought = f"{one_line(self._sought)}{CARET}" if self._sought else "type to search" if is_list else ""
        self.border_title = f"{title}: {sought}" if sought else title
        self.border_subtitle = "Up, Down, PgUp, PgDn scroll · Esc closes"
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(max_width=_KEY_CELLS, style=palette.accent)
        table.add_column(ratio=1)
        words = self._sought.lower().split()
        for title, rows in self._sections:
            fitting = [row for row in rows if all(word in f"{row[0]} {row[1]}".lower() for word in words)]
            if fitting and title:
                table.add_row(Text(title, style="bold"), "")
            for name, does in fitting:
                table.add_row(Text(one_line(name)), Text("\n".join(map(one_line, does.splitlines())), overflow="fold"))
        self._page.update(table if table.row_count else Text("Nothing fits what you typed.", palette.dim))
