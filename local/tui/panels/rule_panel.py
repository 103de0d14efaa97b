"""The panel of /permissions: the rules that hold, with their origin; those of the person are added and removed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from rich.console import Group
from rich.text import Text
from textual import events

from ccb.tunnel.plain_text import one_line

from ...slash_commands.about_session import KEPT, SESSION, HeldRule
from ..widgets.painting import CARET
from .list_panel import ListPanel, PanelClosed, typed

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
_FRAME_LINES = 12
_KEYS = "{rule-add!} adds a rule · {rule-remove!} removes one of yours · Up, Down · Esc closes"


class RulePanel(ListPanel):
    """`place` is where the rules hold, `mode` the permission mode. `change` adds a rule (True) or removes one.
    `marked` is the text of the rule that is marked first."""

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

    def show(self, rules: Sequence[HeldRule], hint: str) -> None:
        """Show the rules that hold now, and what has come of a change."""
        self._rules, self._hint = _sorted(rules), hint
        self._at = min(self._at, max(0, len(self._rules) - 1))
        self._draw()

    def fail(self, why: str) -> None:
        """A change was refused."""
        self._hint = one_line(why)
        self._draw()

    def _pressed(self, event: events.Key) -> None:
        self._hint = ""
        if self._typed is not None:
            self._type(event)
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
        else:
            self._typed = typed(self._typed, event)

    def _pasted(self, text: str) -> None:
        if self._typed is not None:
            self._typed += text

    def _draw(self) -> None:
        palette = self._palette
        head = Text(f"Permission rules on {self._place}", style="bold", no_wrap=True, overflow="ellipsis")
        head.append(f"   mode {one_line(self._mode)}", style=f"not bold {palette.dim}")
        shown = self._window(len(self._rules), self._room(_FRAME_LINES))
        lines = [self._line(self._rules[number], marked=number == self._at) for number in shown]
        none = Text("  No rule holds: what is not harmless is asked.", style=palette.dim)
        self.update(Group(head, *(lines or [none]), *self._foot()))

    def _line(self, held: HeldRule, *, marked: bool) -> Text:
        palette, line = self._palette, self._row(marked=marked)
        style = {"deny": palette.bad, "ask": palette.warn, "allow": palette.good}.get(held.behavior, palette.dim)
        line.append(f"{_WORDS.get(held.behavior, one_line(held.behavior)):<8}", style=style)
        line.append(one_line(held.rule), style="bold" if marked else "")
        source = _SOURCES.get(held.source, one_line(held.source) or "ccb")
        return line.append(f"  {source}", style=palette.dim)

    def _foot(self) -> list[Text]:
        palette, lines = self._palette, []
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
