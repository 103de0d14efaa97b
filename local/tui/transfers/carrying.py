"""The commands /get and /put on the screen."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical

from ccb.tunnel.errors import CcbError, UsageError

from ...files.copy import CopyOrder
from ...files.orders import get_order, put_order
from ...files.transfers import Transfer, Transfers, outcome
from ...session.client import SessionClient
from ..model.blocks import Level
from ..model.error_display import ErrorDisplay
from ..model.transcript_reducer import TranscriptReducer
from .panel import TransferPanel

STOP = "stop"
"""The argument of /get and /put that breaks off the copies that run."""


class FileCarrying(Vertical):
    """Starts copies and shows how far they are. `transfers` is None where there is no connection, as in a test."""

    DEFAULT_CSS = "FileCarrying { height: auto; }"

    def __init__(self, client: SessionClient, reducer: TranscriptReducer, errors: ErrorDisplay) -> None:
        super().__init__()
        self._client = client
        self._reducer = reducer
        self._errors = errors
        self._panel = TransferPanel()
        self.transfers: Transfers | None = None

    def compose(self) -> ComposeResult:
        yield self._panel

    async def get(self, argument: str) -> None:
        """Answer `/get REMOTE [LOCAL]`."""
        await self._start(argument, get_order)

    async def put(self, argument: str) -> None:
        """Answer `/put LOCAL [REMOTE]`."""
        await self._start(argument, put_order)

    def refresh_panel(self) -> bool:
        """Show how far the copies are. Return whether one is under way."""
        running = self.transfers.running if self.transfers is not None else []
        self._panel.show(running, working=self._reducer.running)
        return bool(running)

    def cancel_newest(self) -> bool:
        """Break off the copy that was started last. Return False if none runs."""
        cancelled = self.transfers is not None and self.transfers.cancel_newest() is not None
        self.refresh_panel()
        return cancelled

    async def _start(self, argument: str, order_of: Callable[[str, str], CopyOrder]) -> None:
        if self.transfers is None:
            self._reducer.notice("There is no connection for files here.", Level.WARNING)
            return
        if argument == STOP and self.transfers.cancel_all():
            return
        try:
            transfer = self.transfers.start(order_of(argument, self._client.hello.cwd))
        except UsageError as error:
            self._reducer.notice(f"{error.what}. {error.do}", Level.WARNING)
            return
        self.refresh_panel()
        self.run_worker(self._until_done(transfer), group="copies")

    async def _until_done(self, transfer: Transfer) -> None:
        """Say how a copy has ended."""
        found = await outcome(transfer)
        self.refresh_panel()
        if found is None:
            name = transfer.name
            self._reducer.notice(f"{name}: broken off. The same command goes on where it ended.", Level.DIM)
        elif isinstance(found, CcbError):
            self._errors.show_error(found)
        else:
            self._reducer.notice(transfer.done_text(found))
