"""The copies and the fetched files of a session on the screen."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from ccb.tunnel.errors import CcbError

from ..files.copying import Transfer, outcome
from ..files.fetched_files import FetchedFile, FetchedFiles
from ..slash_commands.registry import Copying
from ..slash_commands.session_api import ErrorDisplay, LaptopSide
from ..terminal.keymap import Keymap
from ..transcript.blocks import Level
from ..transcript.transcript_reducer import TranscriptReducer
from .panels.transfer_panel import OfferPanel, TransferPanel


class FileCarrying(Vertical):
    """Shows how far copies are, and which file waits to be opened."""

    DEFAULT_CSS = "FileCarrying { height: auto; }"

    def __init__(self, laptop: LaptopSide, reducer: TranscriptReducer, errors: ErrorDisplay, keymap: Keymap) -> None:
        super().__init__()
        self._reducer = reducer
        self._errors = errors
        self._panel = TransferPanel(keymap)
        self._offer = OfferPanel(keymap)
        self._transfers = laptop.transfers
        self._fetched = laptop.fetched

    def compose(self) -> ComposeResult:
        yield self._panel
        yield self._offer

    def follow(self, copying: Copying) -> None:
        """Show how far a copy is, and how it ends."""
        self.refresh_panel()
        fetched = self._fetched if copying.shown else None
        self.run_worker(self._until_done(copying.transfer, fetched), group="copies")

    def open_now(self) -> None:
        """Alt+O: open the file that the panel shows."""
        self.run_worker(self.open_offered(), group="copies")

    async def open_offered(self) -> None:
        """Open the file that the panel shows, if the person has had the time to see it."""
        if self._fetched is None or not self._fetched.offered:
            self._reducer.notice("No file waits to be opened: /open PATH fetches one of the host.")
            return
        file = self._fetched.take_first() if self._offer.was_seen(self._fetched.offered) else None
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
        self._panel.show(running, working=self._reducer.running)
        return bool(running)

    def cancel_newest(self) -> str:
        """Put away the file that waits to be opened, or else break off the copy that was started last. Return what was
        done, "" if there is neither."""
        away = self._fetched.take_first() if self._fetched is not None else None
        if away is not None:
            self._show_offer()
            return f"{away.name} was put away"
        cancelled = self._transfers is not None and self._transfers.cancel_newest() is not None
        self.refresh_panel()
        return "breaking the copy off" if cancelled else ""

    async def _until_done(self, transfer: Transfer, fetched: FetchedFiles | None) -> None:
        """Say how a copy has ended, or show the file that it has `fetched`."""
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
        if self._fetched is not None:
            self._offer.show(self._fetched.offered, self._fetched.viewer)
