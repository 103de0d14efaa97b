"""Copies, offers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.text import Text
from textual.widgets import Static

from ...files.copying import Transfer, progress_line
from ...files.fetched_files import FetchedFile
from ...terminal.keymap import Keymap
from ..rendering.themes import palette_of

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


_ROWS = 4


class TransferPanel(Static):
    """One line for each of the first copies, and how to break one off."""

    DEFAULT_CSS = """
    TransferPanel { height: auto; padding: 0 1; background: $background; display: none; }
    TransferPanel.busy { display: block; }
    """

    def __init__(self, keymap: Keymap) -> None:
        super().__init__()
        self._keymap = keymap
        self._rows = 0

    def show(self, transfers: Sequence[Transfer], *, working: bool) -> None:
        """Show how far the copies are. `working`: the agent works, and Esc interrupts it."""
        self.set_class(bool(transfers), "busy")
        if not transfers:
            return
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        width = max(20, self.app.size.width - 3)
        text = Text(no_wrap=True, overflow="ellipsis")
        for each in transfers[:_ROWS]:
            text.append(progress_line(each.name, each.progress, width) + "\n", style=palette.accent)
        more = f"… {len(transfers)} in all · " if len(transfers) > _ROWS else ""
        way = (
            "/get stop breaks off all copies"
            if working
            else f"{self._keymap.name('interrupt')} breaks off the newest copy"
        )
        rows, self._rows = self._rows, len(transfers[:_ROWS])
        # A screen is laid out anew only for another number of lines: this happens ten times a second.
        self.update(text.append(f"  {more}{way}", style=palette.dim), layout=rows != self._rows)
