"""The panel about a file that has arrived: what it is, and the key that opens it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.text import Text
from textual.widgets import Static

from ...files.viewing.fetched import FetchedFile
from ...terminal.keymap import Keymap
from ..theme.palette import palette_of

SEEN_S = 0.5
"""For so long a file cannot be opened after it has come into the panel: the key was meant for the one before."""


class OfferPanel(Static):
    """Shows the file that waits first. It never takes the focus: what a person types must not open a file."""

    DEFAULT_CSS = """
    OfferPanel {
        height: auto; max-height: 6; border: round $accent; padding: 0 1; background: $background; display: none;
    }
    OfferPanel.waits { display: block; }
    """

    def __init__(self, keymap: Keymap) -> None:
        super().__init__()
        self._keymap = keymap
        self._shown: FetchedFile | None = None
        self._since = 0.0  # monotonic

    def was_seen(self, offered: Sequence[FetchedFile]) -> bool:
        """Return whether the person has had the time to see the file that waits first."""
        return bool(offered) and self._shown is offered[0] and time.monotonic() - self._since >= SEEN_S

    def show(self, offered: Sequence[FetchedFile], viewer: str) -> None:
        """Show the first of the files that wait. `viewer` is the program that opens it, or ""."""
        self.set_class(bool(offered), "waits")
        if self._shown is not (first := offered[0] if offered else None):
            self._shown, self._since = first, time.monotonic()
        if self._shown is None:
            return
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        more = f" · {len(offered) - 1} more wait" if len(offered) > 1 else ""
        file = self._shown
        text = Text(file.name, style=f"bold {palette.accent}").append(
            file.text.removeprefix(file.name), style="not bold default"
        )
        key, esc = self._keymap.name("open"), self._keymap.name("interrupt")
        way = f"{key} opens it with {viewer}" if viewer else f"{key} says where it is: no program is known to open it"
        self.update(
            text.append(f"\n{way} · {esc} puts it away while the agent is idle{more}", style=f"not bold {palette.dim}")
        )
