"""The copies of a session that are under way, and the fetched file that waits to be opened."""

from __future__ import annotations

import time

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from ccb.tunnel.errors import CcbError

from ...files.copying import Transfer, outcome, progress_line
from ...files.fetched_files import FetchedFile, FetchedFiles
from ...slash_commands.registry import Copying
from ...slash_commands.session_api import ErrorDisplay, LaptopSide
from ...terminal.keymap import Keymap
from ...transcript.blocks import Level
from ...transcript.transcript_reducer import TranscriptReducer
from ..rendering.themes import palette_in

SEEN_S = 0.5
"""For so long a file cannot be opened after it has come into the panel: the key was meant for the one before."""


_ROWS = 4


class FileCarrying(Vertical):
    """Shows how far the first copies are, and which file waits to be opened. It never takes the focus: what a person
    types must not open a file."""

    DEFAULT_CSS = """
    FileCarrying { height: auto; }
    FileCarrying Static { height: auto; padding: 0 1; background: $background; display: none; }
    FileCarrying .offer { max-height: 6; border: round $accent; }
    FileCarrying .shown { display: block; }
    """

    def __init__(self, laptop: LaptopSide, reducer: TranscriptReducer, errors: ErrorDisplay, keymap: Keymap) -> None:
        super().__init__()
        self._reducer = reducer
        self._errors = errors
        self._keymap = keymap
        self._copies = Static()
        self._rows = 0
        self._offer = Static(classes="offer")
        self._offered: FetchedFile | None = None
        self._since = 0.0  # monotonic
        self._transfers = laptop.transfers
        self._fetched = laptop.fetched

    def compose(self) -> ComposeResult:
        yield from (self._copies, self._offer)

    def follow(self, copying: Copying) -> None:
        self.refresh_panel()
        fetched = self._fetched if copying.shown else None
        self.run_worker(self._until_done(copying.transfer, fetched), group="copies")

    async def open_offered(self) -> None:
        """Open the file that the panel shows, if the person has had the time to see it."""
        if self._fetched is None or not self._fetched.offered:
            self._reducer.notice("No file waits to be opened: /open PATH fetches one of the host.")
            return
        was_seen = self._offered is self._fetched.offered[0] and time.monotonic() - self._since >= SEEN_S
        file = self._fetched.take_first() if was_seen else None
        self._show_offer()
        if file is None:
            return
        try:
            self._reducer.notice(await self._fetched.open_file(file))
        except CcbError as error:
            self._errors.show_error(error)

    def refresh_panel(self) -> bool:
        """Show how far the copies are. Return whether one is under way."""
        running = self._transfers.running if self._transfers is not None else []
        self._copies.set_class(bool(running), "shown")
        if not running:
            return False
        palette, width = palette_in(self.app), max(20, self.app.size.width - 3)
        text = Text(no_wrap=True, overflow="ellipsis")
        for each in running[:_ROWS]:
            text.append(progress_line(each.name, each.progress, width) + "\n", style=palette.accent)
        more = f"… {len(running)} in all · " if len(running) > _ROWS else ""
        esc = f"{self._keymap.name('interrupt')} breaks off the newest copy"
        way = "/get stop breaks off all copies" if self._reducer.running else esc
        rows, self._rows = self._rows, len(running[:_ROWS])
        # A screen is laid out anew only for another number of lines: this happens ten times a second.
        self._copies.update(text.append(f"  {more}{way}", style=palette.dim), layout=rows != self._rows)
        return True

    def cancel_newest(self) -> str:
        """Put the waiting file away, or break off the newest copy. Return what was done, "" for nothing."""
        away = self._fetched.take_first() if self._fetched is not None else None
        if away is not None:
            self._show_offer()
            return f"{away.name} was put away"
        cancelled = self._transfers is not None and self._transfers.cancel_newest() is not None
        self.refresh_panel()
        return "breaking the copy off" if cancelled else ""

    async def _until_done(self, transfer: Transfer, fetched: FetchedFiles | None) -> None:
        found = await (outcome(transfer) if fetched is None else fetched.arrived(transfer))
        self.refresh_panel()
        self._show_offer()
        if isinstance(found, str):
            self._reducer.notice(transfer.done_text(found))
        elif isinstance(found, CcbError):
            self._errors.show_error(found)
        elif not isinstance(found, FetchedFile):
            self._reducer.notice(f"{transfer.name}: broken off. The same command goes on where it ended.", Level.DIM)

    def _show_offer(self) -> None:
        if self._fetched is None:
            return
        offered, viewer = self._fetched.offered, self._fetched.viewer
        self._offer.set_class(bool(offered), "shown")
        file = offered[0] if offered else None
        if self._offered is not file:
            self._offered, self._since = file, time.monotonic()
        if file is None:
            return
        palette = palette_in(self.app)
        text = Text(file.name, style=f"bold {palette.accent}")
        text.append(file.text.removeprefix(file.name), style="not bold default")
        key, esc = self._keymap.name("open"), self._keymap.name("interrupt")
        way = f"{key} opens it with {viewer}" if viewer else f"{key} says where it is: no program is known to open it"
        more = f" · {len(offered) - 1} more wait" if len(offered) > 1 else ""
        way = f"\n{way} · {esc} puts it away while the agent is idle{more}"
        self._offer.update(text.append(way, style=f"not bold {palette.dim}"))
