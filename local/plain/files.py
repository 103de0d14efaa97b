"""/get and /put in the session as lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.plain_text import neutralise, one_line

from ..files.orders import get_order, put_order
from ..files.progress import progress_line
from ..files.transfers import Transfer, Transfers, outcome

_EVERY_S = 10.0
_COLUMNS = 78
_ORDERS = {"/get": get_order, "/put": put_order}


class PlainFiles:
    """Starts copies, and prints with `write` how they go. `transfers` is None where there is no connection for them."""

    def __init__(self, transfers: Transfers | None, write: Callable[[str], None]) -> None:
        self._transfers = transfers
        self._write = write
        self._telling: set[asyncio.Task[None]] = set()

    def command(self, word: str, rest: str, cwd: str) -> bool:
        """Start what `/get REMOTE [LOCAL]` or `/put LOCAL [REMOTE]` asks for. Return False for any other line."""
        order_of = _ORDERS.get(word)
        if order_of is None or self._transfers is None:
            return False
        try:
            transfer = self._transfers.start(order_of(rest, cwd))
        except UsageError as error:
            self._write(f"ccb: {one_line(error.what)}. {one_line(error.do)}")
            return True
        self._write(f"ccb: copying {transfer.name}; Ctrl+C breaks it off while the agent is idle")
        telling = asyncio.create_task(self._tell(transfer), name="progress of a copy")
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        return True

    @property
    def busy(self) -> bool:
        """Whether a copy is under way."""
        return bool(self._telling)

    def cancel_newest(self) -> bool:
        """Break off the copy that was started last. Return False if none runs."""
        return self._transfers is not None and self._transfers.cancel_newest() is not None

    async def close(self) -> None:
        """Print nothing more."""
        telling = list(self._telling)
        for each in telling:
            each.cancel()
        await asyncio.gather(*telling, return_exceptions=True)

    async def _tell(self, transfer: Transfer) -> None:
        while not (await asyncio.wait({transfer.task}, timeout=_EVERY_S))[0]:
            self._write(f"ccb: {progress_line(transfer.name, transfer.progress, _COLUMNS)}")
        found = await outcome(transfer)
        if found is None:
            self._write(f"ccb: {transfer.name}: broken off; the same command goes on where it ended")
        elif isinstance(found, CcbError):
            self._write(f"ccb: error: {neutralise(found.what)}. {neutralise(found.do)}")
        else:
            self._write(f"ccb: {transfer.done_text(found)}")
