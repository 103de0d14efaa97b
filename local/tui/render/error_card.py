"""An error in the conversation as a card: what happened, the evidence, and the one thing to do, beside a bar."""

from __future__ import annotations

import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from ccb.tunnel.wire.dataclass import dataclass

from ..theme.palette import Palette

FIX = "→ "
"""What the line begins with that says what to do."""

BAR = "▌ "
_API_FIX = " · "  # between what the worker says of a model call, and what helps
_FIXES = (
    (re.compile(r"API Error: 429\b"), "The provider limits how much you may ask: wait a little, then send it again."),
    (
        re.compile(r"API Error: 5\d\d\b"),
        "The provider has trouble of its own: send it again later, or choose another model with /model.",
    ),
    (re.compile(r"API Error: 40[02]\b"), "Choose another model with /model, or begin anew with /new."),
    (
        re.compile(r"the budget of .{1,200} is used up"),
        "Raise it under `budgets` in the settings (/config edit) and come back; `ccb usage` shows what was used.",
    ),
    (re.compile(r"the person has revoked that on the laptop"), "Leave, and resume the session, to grant it again."),
    (
        re.compile(r"the time that the laptop's settings give it is over"),
        "Leave, and resume the session; `expiresHours` of `modelCalls` in the settings sets the time.",
    ),
    (re.compile(r"the laptop's settings (do not )?allow"), "`modelCalls` in the settings sets this (/config edit)."),
    (re.compile(r"API Error: (?!\d)"), "Send it again; /doctor examines the way to the model."),
)
"""What helps where the error does not say it."""


def error_lines(text: str) -> list[str]:
    """Return the lines of an error, the last one with what to do, if anything is known to help."""
    lines = text.splitlines() or [""]
    if any(line.startswith(FIX) for line in lines):
        return lines
    if lines[0].startswith("API Error: ") and _API_FIX in lines[0]:
        lines[0], _, fix = lines[0].partition(_API_FIX)
        return [*lines, f"{FIX}{fix[:1].upper()}{fix[1:]}."]
    fix = next((fix for pattern, fix in _FIXES if pattern.search(text)), "")
    return [*lines, FIX + fix] if fix else lines


@dataclass(frozen=True)
class ErrorCard:
    """The card of an error. `bare`: without its bar, for a drawing to copy from."""

    text: str
    palette: Palette
    bare: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        what, *others = error_lines(self.text)
        text = Text.assemble((what, f"bold {self.palette.bad}"))
        for line in others:
            text.append(f"\n{line}", style="" if line.startswith(FIX) else self.palette.dim)
        bar = Segment("" if self.bare else BAR, Style.parse(self.palette.bad))
        width = max(10, options.max_width - len(BAR))
        for drawn in console.render_lines(text, options.update(width=width), pad=False):
            yield bar
            yield from drawn
            yield Segment.line()
