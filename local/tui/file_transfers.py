"""The commands /get, /put and /open on the screen."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical

from ccb.tunnel.errors import CcbError, UsageError

from ..files.copying import CopyOrder, Transfer, Transfers, get_order, outcome, put_order
from ..files.fetched_files import FetchedFile, FetchedFiles
from ..session.session_client import SessionClient
from ..terminal.keymap import Keymap
from ..transcript.blocks import Level
from ..transcript.transcript_reducer import TranscriptReducer
from .panels.transfer_panel import OfferPanel, TransferPanel
from .widgets.session_info import ErrorDisplay

STOP = "stop"
"""The argument of /get and /put that breaks off the copies that run."""

_NO_CONNECTION = "There is no connection for files here."


class FileCarrying(Vertical):
    """Starts copies and shows how far they are, and which file waits to be opened. `transfers` and `fetched` are None
    where there is no connection, as in a test."""

    DEFAULT_CSS = "FileCarrying { height: auto; }"

    def __init__(self, client: SessionClient, reducer: TranscriptReducer, errors: ErrorDisplay, keymap: Keymap) -> None:
        super().__init__()
        self._client = client
        self._reducer = reducer
        self._errors = errors
        self._panel = TransferPanel(keymap)
        self._offer = OfferPanel(keymap)
        self.transfers: Transfers | None = None
        self.fetched: FetchedFiles | None = None

    def compose(self) -> ComposeResult:
        yield self._panel
        yield self._offer

    async def get(self, argument: str) -> None:
        """Answer `/get REMOTE [LOCAL]`."""
        await self._start(argument, get_order)

    async def put(self, argument: str) -> None:
        """Answer `/put LOCAL [REMOTE]`."""
        await self._start(argument, put_order)

    async def open(self, argument: str) -> None:
        """Answer `/open PATH`, or open the file that waits if there is no path."""
        if self.fetched is None:
            self._reducer.notice(_NO_CONNECTION, Level.WARNING)
        elif not argument:
            await self.open_offered()
        else:
            try:
                transfer = self.fetched.fetch(argument, self._client.hello.cwd.raw)
            except UsageError as error:
                self._reducer.notice(f"{error.what}. {error.do}", Level.WARNING)
            except CcbError as error:
                self._errors.show_error(error)
            else:
                self.refresh_panel()
                self.run_worker(self._until_offered(transfer, self.fetched), group="copies")

    def open_now(self) -> None:
        """Alt+O: open the file that the panel shows."""
        self.run_worker(self.open_offered(), group="copies")

    async def open_offered(self) -> None:
        """Open the file that the panel shows, if the person has had the time to see it."""
        if self.fetched is None or not self.fetched.offered:
            self._reducer.notice("No file waits to be opened: /open PATH fetches one of the host.")
            return
        file = self.fetched.take_first() if self._offer.was_seen(self.fetched.offered) else None
        self._show_offer()
        if file is None:
            return
        try:
            self._reducer.notice(await self.fetched.open_file(file))
        except CcbError as error:
            self._errors.show_error(error)

    def refresh_panel(self) -> bool:
        """Show how far the copies are. Return whether one is under way."""
        running = self.transfers.running if self.transfers is not None else []
        self._panel.show(running, working=self._reducer.running)
        return bool(running)

    def cancel_newest(self) -> str:
        """Put away the file that waits to be opened, or else break off the copy that was started last. Return what was
        done, "" if there is neither."""
        away = self.fetched.take_first() if self.fetched is not None else None
        if away is not None:
            self._show_offer()
            return f"{away.name} was put away"
        cancelled = self.transfers is not None and self.transfers.cancel_newest() is not None
        self.refresh_panel()
        return "breaking the copy off" if cancelled else ""

    async def _start(self, argument: str, order_of: Callable[[str, str], CopyOrder]) -> None:
        if self.transfers is None:
            self._reducer.notice(_NO_CONNECTION, Level.WARNING)
            return
        if argument == STOP and self.transfers.cancel_all():
            return
        try:
            transfer = self.transfers.start(order_of(argument, self._client.hello.cwd.raw))
        except UsageError as error:
            self._reducer.notice(f"{error.what}. {error.do}", Level.WARNING)
            return
        self.refresh_panel()
        self.run_worker(self._until_done(transfer), group="copies")

    async def _until_done(self, transfer: Transfer) -> None:
        """Say how a copy has ended."""
        found = await outcome(transfer)
        self.refresh_panel()
        if isinstance(found, str):
            self._reducer.notice(transfer.done_text(found))
        else:
            self._say_why_not(transfer, found)

    async def _until_offered(self, transfer: Transfer, fetched: FetchedFiles) -> None:
        """Show the file once it has arrived."""
        found = await fetched.arrived(transfer)
        self.refresh_panel()
        self._show_offer()
        if not isinstance(found, FetchedFile):
            self._say_why_not(transfer, found)

    def _say_why_not(self, transfer: Transfer, error: CcbError | None) -> None:
        if error is not None:
            self._errors.show_error(error)
        else:
            self._reducer.notice(f"{transfer.name}: broken off. The same command goes on where it ended.", Level.DIM)

    def _show_offer(self) -> None:
        if self.fetched is not None:
            self._offer.show(self.fetched.offered, self.fetched.viewer)
