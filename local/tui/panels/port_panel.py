"""The ports of the host on the screen: the offers in the conversation, and the panel of `/ports`."""

from __future__ import annotations

import time
from collections import deque

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text
from textual import events, work

from ccb.tunnel.errors import CcbError

from ...commands.session_table import cut
from ...ports.port_forwards import LOOPBACK, PortForwards, url_of
from ...slash_commands.port_commands import change_port
from ...slash_commands.session_api import SessionApi
from ...terminal.keymap import Keymap
from ...transcript.blocks import OfferBlock
from ..widgets.transcript import Transcript
from .list_panel import FOR_THE_INPUT, FRAME_CELLS, TYPING_S, ListPanel, PanelClosed


def port_verb(keymap: Keymap, key: str) -> str:
    """Return what a key means for the marked offer of a port, as a word of `/ports`; "" for another key."""
    if key == "enter":
        return "forward"
    verbs = ("open", "forward", "ignore")
    return next((verb for verb in verbs if keymap.has(f"port-{verb}", key)), "")


class PortOffers:
    """The lines in the conversation that offer a port. A line goes once its port is taken, hidden or closed."""

    def __init__(self, ports: PortForwards | None, transcript: Transcript) -> None:
        self._ports, self._transcript = ports, transcript
        self._waiting: deque[int] = deque()
        self._shown: list[OfferBlock] = []

    def came(self, port: int) -> None:
        self._waiting.append(port)

    def refresh(self, *, may_show: bool) -> None:
        """Bring the lines up to date. New ones come only if they `may_show`: not during a replay or beside a card."""
        if self._ports is None:
            return
        for block in [each for each in self._shown if not self._ports.may_offer(each.port)]:
            self._shown.remove(block)
            self._transcript.take_away(block)
        while may_show and self._waiting:
            port = self._waiting.popleft()
            if self._ports.may_offer(port):
                block = OfferBlock(text=f"{self._ports.shown(port)} → {url_of(port)}", port=port)
                self._shown.append(block)
                self._transcript.add(block)


_EVERY_S = 1.0
_FRAME = 10  # lines of the screen beside the rows
_NAME_CELLS = 30
_NARROW = 60  # columns
_KEYS = (
    "Enter forwards it, then opens it · {port-stop!} stops · {port-pin!} pins · {port-ignore!} not for this project"
    " · Esc closes"
)
_NONE = "  No program of this session listens on a port. /ports PORT forwards any other port of the host."


class PortPanel(ListPanel):
    """Lists the ports of the host on which the session's programs listen, and where each is on this machine."""

    def __init__(self, api: SessionApi, ports: PortForwards) -> None:
        super().__init__()
        self._api, self._ports = api, ports
        self._marked = 0, False  # the port, and whether it is one of this machine
        self._said = ""
        self._typed_at = 0.0

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(_EVERY_S, self._draw)

    @property
    def _rows(self) -> list[tuple[int, bool]]:
        here = [(port, False) for port in sorted({*self._ports.listening, *self._ports.forwards})]
        return [*here, *((port, True) for port in self._ports.reverses)]

    def _pressed(self, event: events.Key) -> None:
        rows, (port, is_reverse), self._said = self._rows, self._marked, ""
        if event.key in ("escape", "q"):
            self.post_message(PanelClosed())
        elif self._step(event.key, len(rows)):
            self._marked = rows[self._at] if rows else (0, False)
        elif self._marked in rows and not is_reverse and event.key == "enter":
            self._change("open" if port in self._ports.forwards else "forward", port)
        elif self._marked in rows:
            verbs = ("stop",) if is_reverse else ("stop", "pin", "ignore")
            verb = next((each for each in verbs if self._is(event, each)), "")
            if verb and time.monotonic() - self._typed_at >= TYPING_S:
                self._change(verb, port)
            elif event.is_printable:
                self._typed_at, self._said = time.monotonic(), FOR_THE_INPUT

    def _is(self, event: events.Key, verb: str) -> bool:
        return self.keymap.pressed(f"port-{verb}", event.key, event.character)

    @work
    async def _change(self, verb: str, port: int) -> None:
        try:
            self._said = " ".join((await change_port(self._api, self._ports, verb, port)).lines)
        except CcbError as error:
            self._said = f"{error.what}. {error.do}".strip()
        self._draw()

    def _draw(self) -> None:
        palette, rows = self._palette, self._rows
        self._at = rows.index(self._marked) if self._marked in rows else max(0, min(self._at, len(rows) - 1))
        self._marked = rows[self._at] if rows else (0, False)
        width = max(20, self.size.width or self.app.size.width - FRAME_CELLS)
        head = Text("Ports of the host", "bold", no_wrap=True, overflow="ellipsis")
        head.append(f"   {self._api.info.place}", style=f"not bold {palette.dim}")
        shown = self._window(len(rows), self._room(_FRAME))
        lines = [self._line(*rows[at], width, marked=at == self._at) for at in shown]
        lines = lines or [Text(_NONE, style=palette.dim)]
        keys = Text(self._said or self.keymap.filled(_KEYS), style=palette.accent if self._said else palette.dim)
        self.update(Group(head, *lines, keys))

    def _line(self, port: int, is_reverse: bool, width: int, *, marked: bool) -> Text:
        palette, ports, line = self._palette, self._ports, self._row(marked=marked)
        room = min(_NAME_CELLS, width // 3)
        name = cut(f"{port} of this machine" if is_reverse else ports.shown(port), room)
        line.append(name + " " * (room - cell_len(name)), style="bold" if marked else "not bold")
        if is_reverse:
            reverse = ports.reverses[port]
            if reverse.state:
                return line.append(f"  {reverse.state}", style=f"not bold {palette.warn}")
            where, state, uses = f"{LOOPBACK}:{port}", "on the host", len(reverse.connections)
        elif port in ports.forwards:
            forward = ports.forwards[port]
            idle = ", idle" if port not in ports.listening else ""
            where, state = forward.url, f"pinned{idle}" if forward.pinned else "forwarded"
            uses = len(forward.connections)
        else:
            return line.append("  not forwarded", style=f"not bold {palette.dim}")
        if width < _NARROW:
            where = where.removeprefix("http://")
        line.append(f"  {where:<{len(url_of(65535)) if width >= _NARROW else 0}}", style=f"not bold {palette.good}")
        said = f"  {state}, {uses} connection{'' if uses == 1 else 's'}"
        return line.append(said, style=f"not bold {palette.dim}")
