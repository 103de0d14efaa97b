"""The status line: where we are, who answers, in which mode, over which link, for how much."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line

from ...session.client import LinkState
from ..model.totals import Totals
from ..theme.palette import Look

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
_LEAST_PLACE = 12
_LEAST_PLACE_BESIDE_HINT = 16
_MOST_STEPS = 16  # of a path, at its end
_MODES = {
    "default": ("ask", "ask"),
    "acceptEdits": ("accept edits", "edits"),
    "plan": ("plan", "plan"),
    "bypassPermissions": ("BYPASS", "BYPASS"),
}


@dataclass(frozen=True)
class Facts:
    """Everything the line shows. `hint` answers a key that was just pressed; `asks`: an approval waits that has not the focus;
    `below`: there is more of the transcript than is shown."""

    host: str
    path: str
    model: str
    mode: str
    link: LinkState
    totals: Totals
    busy_s: float | None
    hint: str = ""
    asks: bool = False
    below: bool = False


@dataclass(frozen=True)
class _Part:
    """One entry of the line, and how it is said where there is less room."""

    text: str
    short: str
    style: str


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
    """The line, most important first: connection, place, mode, what goes on. These are shortened, the place to host and
    directory, before one is left out; what else there is to say has what is left."""
    mark, tone = _LINK[facts.link]
    colours = {"good": look.good, "warn": look.warn, "bad": look.bad, "dim": look.dim}
    going = _going(facts, look, colours[tone])
    mode = _mode(facts.mode, look)
    places = _places(one_line(facts.host), one_line(facts.path))
    room = width - len(mark) - 1
    first = _cells(going[0].short) if going else 0
    # A hint is there for seconds only and answers a key that was just pressed: meanwhile the mode gives way to it.
    least = min(
        cell_len(places[-1]),
        _LEAST_PLACE_BESIDE_HINT if facts.hint else max(_LEAST_PLACE, room - _cells(mode.short) - first),
    )
    left = room - least
    shown: list[tuple[str, str]] = []
    if _cells(mode.short) <= left - (first if facts.hint else 0):
        spare = left - first
        shown.append((mode.text if _cells(mode.text) <= spare else mode.short, mode.style))
        left -= _cells(shown[-1][0])
    for part in going:
        said = next((each for each in (part.text, part.short) if _cells(each) <= left), "")
        if not said and part is going[0] and left >= _SHORTEST + len(_GAP):
            said = set_cell_size(part.short, left - len(_GAP) - 1).rstrip() + "…"
        if said:
            shown.append((said, part.style))
            left -= _cells(said)
    most = min(least + left, max(least, width // 2))
    place = next((each for each in places if cell_len(each) <= most), "")
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{mark} ", style=colours[tone])
    text.append(place or _squeezed(one_line(facts.host), one_line(facts.path), most), style="bold")
    for said, style in shown + [(said, look.dim) for said in _rest(facts)]:
        if said and text.cell_len + _cells(said) <= width:  # else the next one may fit
            text.append(_GAP, style=look.dim)
            text.append(said, style=style)
    return text


def _cells(text: str) -> int:
    return len(_GAP) + cell_len(text)


def _going(facts: Facts, look: Look, tone: str) -> list[_Part]:
    """What goes on, most important first."""
    parts = []
    if facts.hint:
        parts.append(_Part(facts.hint, facts.hint, look.warn))
    if facts.asks:
        parts.append(_Part("approval waits: Tab", "Tab: answer", look.warn))
    if facts.link is not LinkState.CONNECTED:
        parts.append(_Part(facts.link.value, facts.link.value, tone))
    if facts.busy_s is not None:
        working = f"working {facts.busy_s:.0f} s"
        esc = ", Esc interrupts" if facts.link is LinkState.CONNECTED else ""
        parts.append(_Part(working + esc, working, look.accent))
    if facts.below:
        parts.append(_Part("↓ more below", "↓ more", look.warn))
    return parts


def _mode(mode: str, look: Look) -> _Part:
    text, short = _MODES.get(mode, (one_line(mode), _cut(one_line(mode), _LEAST_PLACE)))
    return _Part(text, short, look.bad if mode == "bypassPermissions" else look.warn if mode != "default" else look.dim)


def _rest(facts: Facts) -> list[str]:
    """What is worth a look where there is room for it."""
    context = [f"context {tokens(facts.totals.context_tokens)}"] if facts.totals.context_tokens else []
    return [one_line(facts.model), *context, *_used(facts.totals)]


def _places(host: str, path: str) -> list[str]:
    """Host and directory, ever shorter: without user and domain, with only the ends of the path, at last its last part."""
    short = _short_host(host)
    steps = path.rstrip("/").split("/")
    ends = ["…/" + "/".join(steps[begin:]) for begin in range(max(2, len(steps) - _MOST_STEPS), len(steps))]
    return [f"{host}:{path}", f"{short}:{path}", *(f"{short}:{end}" for end in ends)]


def _short_host(host: str) -> str:
    """`devbox` for `alice@devbox.example.com`, `web on devbox` for a container there. An address and a command stay."""
    named = re.fullmatch(r"((?:\S+ on )?)(?:\S*@)?([^\s@]+)", host)
    if named is None:
        return host
    with suppress(ValueError):
        ip_address(named[2].strip("[]"))
        return named[1] + named[2]
    return named[1] + named[2].partition(".")[0]


def _squeezed(host: str, path: str, room: int) -> str:
    """Host and directory where not even their names fit: beginning and end of each, since names of a kind differ there."""
    host, directory = _short_host(host), path.rstrip("/").rpartition("/")[2] or path
    half = (room - 1) // 2
    host = _cut(host, max(half, room - 1 - cell_len(directory)))
    return f"{host}:{_cut(directory, room - 1 - cell_len(host))}"


def _cut(text: str, room: int) -> str:
    """`text` in at most so many cells, without its middle."""
    if cell_len(text) <= room:
        return text
    for kept in range(room - 1, 0, -1):
        cut = text[: kept - kept // 2] + "…" + text[len(text) - kept // 2 :]
        if cell_len(cut) <= room:
            return cut
    return "…"


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
