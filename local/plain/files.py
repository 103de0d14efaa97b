"""/get, /put and /open in the session as lines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ccb.tunnel.errors import CcbError

from ..files.copying import Transfer, Transfers, get_order, outcome, progress_line, put_order
from ..files.fetched_files import FetchedFile, FetchedFiles

_EVERY_S = 10.0
_COLUMNS = 78
_ORDERS = {"/get": get_order, "/put": put_order}


class PlainFiles:
    """Starts copies, and prints with `write` how they go. `transfers` and `fetched` are None where there is no
    connection for them."""

    def __init__(self, transfers: Transfers | None, fetched: FetchedFiles | None, write: Callable[[str], None]) -> None:
        self._transfers = transfers
        self._fetched = fetched
        self._write = write
        self._telling: set[asyncio.Task[None]] = set()

    def command(self, word: str, rest: str, cwd: str) -> bool:
        """Do what `/get REMOTE [LOCAL]`, `/put LOCAL [REMOTE]`, `/open PATH` or `/open` asks for. Return False for any
        other line."""
        order_of = _ORDERS.get(word)
        try:
            if word == "/open" and self._fetched is not None:
                fetched = self._fetched
                start = self._tell(fetched.fetch(rest, cwd), fetched.arrived) if rest else self._open(fetched)
            elif order_of is not None and self._transfers is not None:
                start = self._tell(self._transfers.start(order_of(rest, cwd)), outcome)
            else:
                return False
        except CcbError as error:
            self._write(f"ccb: {error.what}. {error.do}")
            return True
        telling = asyncio.create_task(start, name="files")
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

    async def _open(self, fetched: FetchedFiles) -> None:
        """Open the file that was announced first."""
        file = fetched.take_first()
        if file is None:
            self._write("ccb: no file waits to be opened: /open PATH fetches one of the host")
            return
        try:
            self._write(f"ccb: {await fetched.open_file(file)}")
        except CcbError as error:
            self._say_why_not(error)
        if fetched.offered:
            self._offer(fetched.offered[0])

    async def _tell(
        self, transfer: Transfer, ended: Callable[[Transfer], Awaitable[FetchedFile | str | CcbError | None]]
    ) -> None:
        """Say how far a copy is, and how it has `ended`."""
        self._write(f"ccb: copying {transfer.name}; Ctrl+C breaks it off while the agent is idle")
        while not (await asyncio.wait({transfer.task}, timeout=_EVERY_S))[0]:
            self._write(f"ccb: {progress_line(transfer.name, transfer.progress, _COLUMNS)}")
        found = await ended(transfer)
        if found is None:
            self._write(f"ccb: {transfer.name}: broken off; the same command goes on where it ended")
        elif isinstance(found, CcbError):
            self._say_why_not(found)
        elif isinstance(found, FetchedFile):
            self._offer(found)
        else:
            first, *more = transfer.done_text(found)
            for line in (f"ccb: {first}", *more):
                self._write(line)

    def _offer(self, file: FetchedFile) -> None:
        """Say what a file is, and what opens it."""
        if self._fetched is None:
            return
        before = self._fetched.offered.index(file) if file in self._fetched.offered else 0
        viewer = self._fetched.viewer
        way = f"/open alone opens it{f' with {viewer}' if viewer else ''}"
        self._write(f"ccb: {file.text}; {way}{f', after the {before} before it' if before else ''}")

    def _say_why_not(self, error: CcbError) -> None:
        self._write(f"ccb: error: {error.what}. {error.do}")
