"""The status line: where we are, who answers, in which mode, over which link, for how much."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line

from ..client import LinkState
from .palette import Look
from .totals import Totals

_LINK = {
    LinkState.CONNECTED: ("●", "good"),
    LinkState.CONNECTING: ("◌", "warn"),
    LinkState.RECONNECTING: ("◌", "warn"),
    LinkState.LOST: ("✗", "bad"),
    LinkState.NEEDS_PERSON: ("!", "warn"),
    LinkState.FENCED: ("◇", "warn"),
    LinkState.CLOSED: ("○", "dim"),
}
_GAP = "  "
_SHORTEST = 4
_SHORTEST_WHERE = 16
_MODES = {"default": "ask", "acceptEdits": "accept edits", "plan": "plan", "bypassPermissions": "BYPASS"}


@dataclass(frozen=True)
class Facts:
    """Everything the line shows."""

    where: str
    model: str
    mode: str
    link: LinkState
    totals: Totals
    busy_s: float | None
    hint: str


def tokens(count: int) -> str:
    """`950`, `12.3k`, `1.2M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def _used(totals: Totals) -> list[str]:
    parts = []
    if totals.input_tokens or totals.output_tokens:
        parts.append(f"{tokens(totals.input_tokens)} in, {tokens(totals.output_tokens)} out")
    if totals.cost_usd:
        parts.append(f"${totals.cost_usd:.2f}")
    return parts


def used_text(totals: Totals) -> str:
    """Tokens and money in words; empty when nothing was used."""
    return ", ".join(_used(totals)).replace(" in,", " tokens in,", 1)


def status_text(facts: Facts, look: Look, width: int) -> Text:
    """The line, most important first; what does not fit is left out from the right."""
    mark, tone = _LINK[facts.link]
    colours = {"good": look.good, "warn": look.warn, "bad": look.bad, "dim": look.dim}
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{mark} ", style=colours[tone])
    parts: list[tuple[str, str]] = []
    if facts.link is not LinkState.CONNECTED:
        parts.append((facts.link.value, colours[tone]))
    if facts.hint:
        parts.append((facts.hint, look.warn))
    # A hint answers a key that was just pressed: the place gives way to it, and then the word for the link, whose mark stays.
    where, most = one_line(facts.where), width // 2
    if facts.hint:
        left = width - text.cell_len - sum(len(_GAP) + len(part) for part, _ in parts)
        if left < min(len(where), _SHORTEST_WHERE):
            parts, left = parts[-1:], width - text.cell_len - len(_GAP) - len(facts.hint)
        most = min(most, max(left, _SHORTEST_WHERE))
    text.append(where if len(where) <= most else "…" + where[1 - most :], style="bold")
    if facts.busy_s is not None:
        esc = ", Esc interrupts" if facts.link is LinkState.CONNECTED else ""
        parts.append((f"working {facts.busy_s:.0f} s{esc}", look.accent))
    mode = _MODES.get(facts.mode, one_line(facts.mode))
    parts.append(
        (mode, look.bad if facts.mode == "bypassPermissions" else look.warn if facts.mode != "default" else look.dim)
    )
    parts.append((one_line(facts.model), look.dim))
    totals = facts.totals
    if totals.context_tokens:
        parts.append((f"context {tokens(totals.context_tokens)}", look.dim))
    parts += [(part, look.dim) for part in _used(totals)]
    for part, style in parts:
        room = width - text.cell_len - len(_GAP)
        if not part or room < _SHORTEST:
            continue
        if len(part) > room and part is not parts[0][0]:
            continue  # the next one may fit
        text.append(_GAP, style=look.dim)
        text.append(part if len(part) <= room else part[: room - 1] + "…", style=style)
    return text


class StatusLine(Static):
    """One line at the bottom."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 1; background: $surface; }"

    _shown: Text | None = None

    def show(self, facts: Facts, look: Look) -> None:
        """Draw the line anew."""
        text = status_text(facts, look, max(20, self.size.width))
        if text != self._shown or text.spans != self._shown.spans:
            self._shown = text
            self.update(text)
