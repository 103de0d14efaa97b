"""The panel of /hosts: the hosts and directories of the last sessions, with what is known of each."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from rich.console import Group
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.dataclass import dataclass

from ...commands.sessions.table import age_text
from ..theme.palette import palette_of

_MAX_ROWS, _FRAME_LINES = 10, 11
_KEYS = "Enter: sessions of this host, the command for another · Esc closes"


@dataclass(frozen=True)
class RecentHost:
    """A host and a directory. `ago_s`: seconds since the last model call there. `state` is what is known of the
    connection, "" for none. `here`: it is the one on the screen."""

    host: str
    directory: str
    ago_s: float | None = None
    state: str = ""
    here: bool = False

    @property
    def command(self) -> str:
        """The command that opens a session there."""
        if self.host == "local":
            return f"ccb --local {shlex.quote(self.directory)}"
        return f"ccb ssh {shlex.quote(f'{self.host}:{self.directory}')}"


class HostPanel(Static, can_focus=True):
    """Lists `hosts`, the one on the screen first. `choose` is called with what the person chooses."""

    DEFAULT_CSS = """
    HostPanel { height: auto; border: round $accent; padding: 0 1; background: $background; }
    """

    class HostsClosed(Message):
        """The person has seen enough."""

    def __init__(self, hosts: Sequence[RecentHost], choose: Callable[[RecentHost], object]) -> None:
        super().__init__()
        self._choose = choose
        self._hosts = hosts
        self._at = 0

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        step = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -_MAX_ROWS, "pagedown": _MAX_ROWS}.get(event.key, 0)
        if event.key in ("escape", "q"):
            self.post_message(self.HostsClosed())
        elif event.key == "enter":
            self._choose(self._hosts[self._at])
            return
        self._at = min(max(self._at + step, 0), len(self._hosts) - 1)
        self._draw()

    def _draw(self) -> None:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        rows = max(3, min(_MAX_ROWS, self.app.size.height - _FRAME_LINES))
        first = min(max(0, self._at - rows // 2), max(0, len(self._hosts) - rows))
        lines = [Text("Hosts of your last sessions", style="bold")]
        for number, each in enumerate(self._hosts[first : first + rows], first):
            marked = number == self._at
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append("› " if marked else "  ", style=f"bold {palette.accent}")
            used = "now" if each.here else age_text(each.ago_s) if each.ago_s is not None else ""
            line.append(f"{used:>5}  ", style=palette.dim)
            line.append(f"{one_line(each.host)}:{one_line(each.directory)}", style="bold" if marked else "")
            state = f"here, {each.state}" if each.here else each.state
            line.append(f"  {state}", style=palette.good if each.state else palette.dim)
            lines.append(line)
        if len(self._hosts) == 1:
            lines.append(Text("  No other host: sessions leave their trace with their first answer.", palette.dim))
        self.update(Group(*lines, Text(_KEYS, style=palette.dim)))
