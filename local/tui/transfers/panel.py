"""The lines above the composer that say how far the copies are."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widgets import Static

from ...files.progress import progress_line
from ...files.transfers import Transfer
from ...terminal.keymap import Keymap
from ..theme.palette import palette_of

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
