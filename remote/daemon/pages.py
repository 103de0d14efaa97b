"""Send earlier events to clients that ask for them, page by page. A thread reads each page, and the page is held until
the client takes it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Callable

from ccb.tunnel.wire import Fetch, Past
from ccb.tunnel.wire.records import Record, to_page

from ..journal.journal import Journal
from .client import Client

Json = dict[str, Any]

log = logging.getLogger(__name__)

_MAX_PAGE = 512 * 1024  # bytes
_MAX_PAGES = 32  # pages that one client may ask for before they are sent


class Pages:
    """Sends pages of earlier events. `epoch` returns the present epoch. Close it before the journal."""

    def __init__(self, journal: Journal, epoch: Callable[[], int]) -> None:
        self._journal = journal
        self._epoch = epoch
        self._tasks: set[asyncio.Task[None]] = set()

    def fetch(self, client: Client, frame: Fetch) -> None:
        """Send a page. Detach a client that asks for too many pages at once."""
        if client.pages >= _MAX_PAGES:
            log.warning("client %s asked for too many pages of earlier events, and is detached", client.name)
            client.outbox.close()
            return
        client.pages += 1
        task = asyncio.get_running_loop().create_task(self._send(client, frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drop the pages that were not sent yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, client: Client, frame: Fetch) -> None:
        try:
            async with client.paging:
                records = await self._records(frame)
                await client.outbox.bulk(Past(self._epoch(), frame.request, to_page(records)))
        finally:
            client.pages -= 1

    async def _records(self, frame: Fetch) -> list[Record]:
        try:
            return await asyncio.get_running_loop().run_in_executor(
                None, self._journal.page, frame.before, min(frame.most, _MAX_PAGE)
            )
        except OSError as error:
            log.error("earlier events cannot be read: %s", error)
            return []
