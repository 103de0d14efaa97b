"""The panel of /permissions: the rules that hold, with their origin; those of the person are added and removed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from rich.console import Group
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.dataclass import dataclass

from ...terminal.keymap import DEFAULT_KEYMAP
from ..rendering.themes import Palette, palette_of
from ..widgets.painting import CARET

SESSION, KEPT = "session", "localSettings"
"""Where a rule of the person holds, in the public protocol: in this session, or always for this host and directory."""

_RULE = re.compile(r"[A-Za-z_][A-Za-z0-9_.*-]*(\([^\S\n]*\S.*\))?")
_ORDER = ("deny", "ask", "allow")
_WORDS = {"deny": "denied", "ask": "asked", "allow": "allowed"}
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
_MAX_ROWS = 10
_FRAME_LINES = 12
_KEYS = "{rule-add!} adds a rule · {rule-remove!} removes one of yours · Up, Down · Esc closes"


@dataclass(frozen=True)
class HeldRule:
    """A rule that holds. `behavior`: allow, ask or deny. `source` as in the public protocol."""

    behavior: str
    source: str
    rule: str

    @property
    def is_own(self) -> bool:
        """Whether the person may remove it here."""
        return self.source in (SESSION, KEPT)


class RulePanel(Static, can_focus=True):
    """`place` is where the rules hold, `mode` the permission mode. `change` adds a rule (True) or removes one.
    `marked` is the text of the rule that is marked first."""

    DEFAULT_CSS = """
    RulePanel { height: auto; border: round $accent; padding: 0 1; background: $background; }
    """

    keymap = DEFAULT_KEYMAP

    class RulesClosed(Message):
        """The person has seen enough."""

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
        self._place = place
        self._mode = mode
        self._rules = _sorted(rules)
        self._at = next((at for at, each in enumerate(self._rules) if each.rule == marked), 0)
        self._typed: str | None = None  # the new rule, None while none is typed
        self._kind = 0
        self._asks = False  # whether the marked rule is to be removed
        self._hint = ""

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def show(self, rules: Sequence[HeldRule], hint: str) -> None:
        """Show the rules that hold now, and what has come of a change."""
        self._rules, self._hint = _sorted(rules), hint
        self._at = min(self._at, max(0, len(self._rules) - 1))
        self._draw()

    def fail(self, why: str) -> None:
        """A change was refused."""
        self._hint = one_line(why)
        self._draw()

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self._hint = ""
        if self._typed is not None:
            self._type(event)
        elif self._asks:
            self._asks = False
            if event.key in ("y", "enter"):
                self.run_worker(self._change(self, self._rules[self._at], False))
        elif event.key in ("escape", "q"):
            self.post_message(self.RulesClosed())
        elif self.keymap.pressed("rule-add", event.key, event.character):
            self._typed = ""
        elif self.keymap.pressed("rule-remove", event.key, event.character) and self._rules:
            own = self._rules[self._at].is_own
            self._asks, self._hint = own, "" if own else "This rule is not yours to remove here: it comes from a file."
        else:
            step = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -_MAX_ROWS, "pagedown": _MAX_ROWS}
            self._at = min(max(self._at + step.get(event.key, 0), 0), max(0, len(self._rules) - 1))
        self._draw()

    def _type(self, event: events.Key) -> None:
        assert self._typed is not None
        if event.key == "escape":
            self._typed = None
        elif event.key in ("up", "down"):
            self._kind = (self._kind + (1 if event.key == "down" else -1)) % len(_KINDS)
        elif event.key == "enter":
            rule = self._typed.strip()
            if _RULE.fullmatch(rule):
                behavior, where = _KINDS[self._kind]
                self._typed = None
                self.run_worker(self._change(self, HeldRule(behavior, where, rule), True))
            else:
                self._hint = "A rule is Tool or Tool(pattern), such as Bash(npm test *) or Edit(src/**)."
        elif event.key == "backspace":
            self._typed = self._typed[:-1]
        elif event.character and event.is_printable:
            self._typed += event.character

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if self._typed is not None:
            self._typed += one_line(event.text)
            self._draw()

    def _draw(self) -> None:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        head = Text(f"Permission rules on {self._place}", style="bold", no_wrap=True, overflow="ellipsis")
        head.append(f"   mode {one_line(self._mode)}", style=f"not bold {palette.dim}")
        rows = max(3, min(_MAX_ROWS, self.app.size.height - _FRAME_LINES))
        first = min(max(0, self._at - rows // 2), max(0, len(self._rules) - rows))
        shown = self._rules[first : first + rows]
        lines = [self._line(each, palette, marked=first + number == self._at) for number, each in enumerate(shown)]
        none = Text("  No rule holds: what is not harmless is asked.", style=palette.dim)
        self.update(Group(head, *(lines or [none]), *self._foot(palette)))

    def _line(self, held: HeldRule, palette: Palette, *, marked: bool) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("› " if marked else "  ", style=f"bold {palette.accent}")
        style = {"deny": palette.bad, "ask": palette.warn, "allow": palette.good}.get(held.behavior, palette.dim)
        line.append(f"{_WORDS.get(held.behavior, one_line(held.behavior)):<8}", style=style)
        line.append(one_line(held.rule), style="bold" if marked else "")
        source = _SOURCES.get(held.source, one_line(held.source) or "ccb")
        return line.append(f"  {source}", style=palette.dim)

    def _foot(self, palette: Palette) -> list[Text]:
        lines = []
        if self._typed is not None:
            behavior, where = _KINDS[self._kind]
            line = Text.assemble(
                (f"{behavior} {_WHERE[where]}: ", palette.accent), (f"{one_line(self._typed)}{CARET}", "bold")
            )
            kept = f"kept on this laptop for {self._place}" if where == KEPT else "gone with the session"
            keys = f"Up, Down: allow, ask, deny, in this session or always · Enter adds it ({kept}) · Esc"
            lines += [line, Text(keys, style=palette.dim)]
        elif self._asks:
            held = self._rules[self._at]
            asked = f"Remove “{held.behavior} {one_line(held.rule)}”, {_SOURCES[held.source]}? "
            lines.append(Text.assemble((asked, palette.warn), ("y removes it · any other key keeps it", palette.dim)))
        if self._hint:
            lines.append(Text(self._hint, style=palette.warn))
        return lines or [Text(self.keymap.filled(_KEYS), style=palette.dim)]


def _sorted(rules: Sequence[HeldRule]) -> list[HeldRule]:
    """Return the rules, those that deny first: they win."""
    return sorted(rules, key=lambda each: _ORDER.index(each.behavior) if each.behavior in _ORDER else len(_ORDER))
