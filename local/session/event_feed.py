"""What the reader of a session gets: the received events, and the changes of the connection, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ccb.tunnel.errors import CcbError

from .client import Item, LinkChange
from .state import Change, LinkState, Role, Standing, after, target

MAX_QUEUED = 256
"""Items that may wait for the reader. While the queue is full, the link is not read, so the host waits."""


class EventFeed:
    """The state of a session and the bounded queue to its one reader. `failure` is why the session was given up."""

    def __init__(self, role: Role) -> None:
        self.standing = Standing(LinkState.CONNECTING, role)
        self.failure: CcbError | None = None
        self._queue: asyncio.Queue[Item | None] = asyncio.Queue(MAX_QUEUED)
        self._ended = asyncio.Event()

    def shift(self, change: Change) -> bool:
        """Change the state without telling the reader. Return whether the connection is now in the state that the
        change leads to."""
        self.standing = after(self.standing, change)
        return self.standing.link is target(change)

    async def change(self, change: Change, reason: str = "", attempt: int = 0, retry_at: float | None = None) -> None:
        """Change the state. Tell the reader only if the change was possible in the present state."""
        if self.shift(change):
            await self.put(LinkChange(self.standing.link, reason, attempt, retry_at))

    async def put(self, item: Item) -> None:
        """Add an item; waits while the queue is full."""
        await self._queue.put(item)

    def end(self, change: Change, failure: CcbError | None = None) -> None:
        """End the feed. The reader still gets the items that wait; then `failure`, if given, is raised to it."""
        self.failure = self.failure or failure
        self.shift(change)
        self._ended.set()
        if not self._queue.full():
            self._queue.put_nowait(None)  # wakes the reader

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def wait_ended(self) -> None:
        """Wait until the session has ended, for whatever reason."""
        await self._ended.wait()

    async def skip(self) -> None:
        """Wait for the next item and drop it."""
        await self._queue.get()

    async def items(self) -> AsyncIterator[Item]:
        """Yield every waiting item, then every new one. At the end, raise the failure if there is one."""
        while not (self._ended.is_set() and self._queue.empty()):
            item = await self._queue.get()
            if item is not None:
                yield item
        if self.failure is not None:
            raise self.failure
