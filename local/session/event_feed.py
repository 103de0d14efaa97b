"""What the reader of a session gets: the received events, and the changes of the connection, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from ccb.tunnel.errors import CcbError

from .client import Item, LinkChange
from .state import Change, LinkState, Role, Standing, after, target

MAX_QUEUED = 256
"""Items that may wait for the reader. While the queue is full, the link is not read, so the host waits."""

MAX_QUEUED_BYTES = 16 * 1024 * 1024
"""Bytes of memory of the items that wait. A single larger item is accepted when nothing else waits."""


class EventFeed:
    """The state of a session and the bounded queue to its one reader. `failure` is why the session was given up."""

    def __init__(self, role: Role) -> None:
        self.standing = Standing(LinkState.CONNECTING, role)
        self.failure: CcbError | None = None
        self._queue: deque[tuple[Item, int]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
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

    async def put(self, item: Item, memory: int = 0) -> None:
        """Add an item that takes `memory` bytes; waits while the queue is full. One task at a time may put items."""
        while self._queue and (len(self._queue) >= MAX_QUEUED or self._bytes + memory > MAX_QUEUED_BYTES):
            self._room.clear()
            await self._room.wait()
        self._append(item, memory)

    def add(self, item: Item) -> None:
        """Add an item of this laptop at once. The host cannot cause more of them than it has requests running."""
        self._append(item, 0)

    def _append(self, item: Item, memory: int) -> None:
        self._queue.append((item, memory))
        self._bytes += memory
        self._news.set()

    def end(self, change: Change, failure: CcbError | None = None) -> None:
        """End the feed. The reader still gets the items that wait; then `failure`, if given, is raised to it."""
        self.failure = self.failure or failure
        self.shift(change)
        self._ended.set()
        self._news.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def wait_ended(self) -> None:
        """Wait until the session has ended, for whatever reason."""
        await self._ended.wait()

    async def skip(self) -> None:
        """Wait for the next item and drop it."""
        while not self._queue:
            self._news.clear()
            await self._news.wait()
        self._take()

    async def items(self) -> AsyncIterator[Item]:
        """Yield every waiting item, then every new one. At the end, raise the failure of the feed."""
        while self._queue or not self._ended.is_set():
            if self._queue:
                yield self._take()
                continue
            self._news.clear()
            await self._news.wait()
        if self.failure is not None:
            raise self.failure

    def _take(self) -> Item:
        item, memory = self._queue.popleft()
        self._bytes -= memory
        self._room.set()
        return item
