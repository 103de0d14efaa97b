"""Earlier events for clients that ask: one page after the other, read in a thread, held until the client takes it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Callable

from ccb.tunnel.wire import Fetch, Past

from ..journal.journal import Journal
from .clients import Client

Json = dict[str, Any]

log = logging.getLogger(__name__)

_MAX_PAGE = 512 * 1024
_MAX_PAGES = 32  # asked for by one client and not sent yet


class Pages:
    """What is being read and sent, in the `epoch` of that moment. To be closed before the journal is."""

    def __init__(self, journal: Journal, epoch: Callable[[], int]) -> None:
        self._journal = journal
        self._epoch = epoch
        self._tasks: set[asyncio.Task[None]] = set()

    def fetch(self, client: Client, frame: Fetch) -> None:
        """Send a page; a client that asks for too many is sent away."""
        if client.pages >= _MAX_PAGES:
            client.close("too many pages of earlier events are asked for")
            return
        client.pages += 1
        task = asyncio.get_running_loop().create_task(self._send(client, frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """What was not sent yet is not sent any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, client: Client, frame: Fetch) -> None:
        try:
            async with client.paging:
                records = await self._records(frame)
                await client.bulk(Past(self._epoch(), frame.request, {"records": records}))
        finally:
            client.pages -= 1

    async def _records(self, frame: Fetch) -> list[Json]:
        try:
            records = await asyncio.get_running_loop().run_in_executor(
                None, self._journal.page, frame.before, min(frame.most, _MAX_PAGE)
            )
        except OSError as error:
            log.error("earlier events cannot be read: %s", error)
            records = []
        return [{"seq": record.seq, "kind": record.kind, "body": record.body} for record in records]
