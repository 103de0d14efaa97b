"""The status line: where we are, who answers, in which mode, over which link, for how much."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text
from textual.widgets import Static

from ccb.tunnel.plain_text import neutralise

from ..client import LinkState
from .look import Look
from .story import Totals

_LINK = {
    LinkState.CONNECTED: ("●", "good"),
    LinkState.CONNECTING: ("◌", "warn"),
    LinkState.RECONNECTING: ("◌", "warn"),
    LinkState.LOST: ("✗", "bad"),
    LinkState.FENCED: ("✗", "bad"),
    LinkState.CLOSED: ("○", "dim"),
}
_MODES = {"default": "ask", "acceptEdits": "accept edits", "plan": "plan", "bypassPermissions": "BYPASS"}


@dataclass(frozen=True)
class Facts:
    """Everything the line shows."""

    where: str
    model: str
    mode: str
    link: LinkState
    reason: str
    totals: Totals
    busy_s: float | None
    hint: str


def tokens(count: int) -> str:
    """`950`, `12.3k`, `1.2M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def status_text(facts: Facts, look: Look, width: int) -> Text:
    """The line, most important first; what does not fit is left out from the right."""
    mark, tone = _LINK[facts.link]
    colours = {"good": look.good, "warn": look.warn, "bad": look.bad, "dim": look.dim}
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{mark} ", style=colours[tone])
    text.append(neutralise(facts.where), style="bold")
    if facts.link is not LinkState.CONNECTED:
        said = facts.link.value + (f": {neutralise(facts.reason)}" if facts.reason else "")
        text.append(f"  {said}", style=colours[tone])
    parts: list[tuple[str, str]] = []
    if facts.hint:
        parts.append((facts.hint, look.warn))
    if facts.busy_s is not None:
        parts.append((f"working {facts.busy_s:.0f} s · Esc interrupts", look.accent))
    mode = _MODES.get(facts.mode, neutralise(facts.mode))
    parts.append(
        (mode, look.bad if facts.mode == "bypassPermissions" else look.warn if facts.mode != "default" else look.dim)
    )
    parts.append((neutralise(facts.model), look.dim))
    totals = facts.totals
    if totals.input_tokens or totals.output_tokens:
        parts.append((f"{tokens(totals.input_tokens)} in {tokens(totals.output_tokens)} out", look.dim))
    if totals.cost_usd:
        parts.append((f"${totals.cost_usd:.2f}", look.dim))
    for part, style in parts:
        if part and text.cell_len + len(part) + 3 <= width:
            text.append("  ")
            text.append(part, style=style)
    return text


class StatusLine(Static):
    """One line at the bottom."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 2; background: $surface; }"

    def show(self, facts: Facts, look: Look) -> None:
        """Draw the line anew."""
        self.update(status_text(facts, look, max(20, self.size.width - 4)))
