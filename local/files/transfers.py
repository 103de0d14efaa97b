"""The copies that a person has started in one session: they run beside it, and end with it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.spelling import spelled

from .copy import CopyOrder, OpenTransport, copy
from .progress import CopyProgress, size_of

Opener = Callable[[], AbstractAsyncContextManager[OpenTransport]]
"""Lends one copy the way to its connections."""

_AT_ONCE = 3
_MOST = 20


@dataclass
class Transfer:
    """One copy. `task` returns the path that was written on the laptop, and raises CcbError or CancelledError."""

    number: int
    order: CopyOrder
    progress: CopyProgress
    task: asyncio.Task[str] = field(init=False)

    @property
    def name(self) -> str:
        """What the person sees of it: an arrow to or from the host, and a name."""
        return f"{'↑' if self.order.upload else '↓'} {self.order.shown}"

    def done_text(self, path: str) -> list[str]:
        """Return what is said when all of it has arrived. `path` is where it is on the laptop."""
        progress, name = self.progress, self.order.shown
        files = f"{progress.copied} files, " if progress.copied != 1 else ""
        where = (
            f"{spelled(self.order.remote)} on the host"
            if self.order.upload
            else f"{spelled(str(Path(path).absolute()))} on the laptop"
        )
        lines = [f"Copied {name} ({files}{size_of(progress.done)}) to {where}"]
        for left, why in progress.skipped[:10]:
            lines.append(f"  left out: {HostText(spelled(left)).path}: {why[:200]}")
        more = len(progress.skipped) - 10
        return [*lines, f"  and {more} more"] if more > 0 else lines


class Transfers:
    """Runs copies over the connection of a session, a few at a time. Use with `async with`: what runs at its end is
    broken off, and goes on when the person gives the same command again."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._numbers = itertools.count(1)
        self.running: list[Transfer] = []

    async def __aenter__(self) -> Transfers:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [each.task for each in self.running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def start(self, order: CopyOrder) -> Transfer:
        """Start a copy. Raise UsageError if too many wait already."""
        if len(self.running) >= _MOST:
            raise UsageError(f"{_MOST} copies are under way or wait", do="Wait until one is done.")
        transfer = Transfer(next(self._numbers), order, CopyProgress(waiting="waiting for the copies before it"))
        transfer.task = asyncio.create_task(self._run(transfer), name=f"copy {transfer.number}")
        self.running.append(transfer)
        transfer.task.add_done_callback(lambda task: self._ended(transfer))
        return transfer

    def cancel_newest(self) -> Transfer | None:
        """Break off the copy that was started last. Return it, or None."""
        for each in reversed(self.running):
            if not each.task.cancelling():
                each.progress.waiting = "breaking off"
                each.task.cancel()
                return each
        return None

    def cancel_all(self) -> bool:
        """Break off every copy. Return whether there was one."""
        any_ended = False
        while self.cancel_newest() is not None:
            any_ended = True
        return any_ended

    async def _run(self, transfer: Transfer) -> str:
        async with self._room:
            transfer.progress.waiting = "connecting"
            async with self._opener() as open_transport:
                return await copy(transfer.order, open_transport, transfer.progress)

    def _ended(self, transfer: Transfer) -> None:
        self.running.remove(transfer)
        if not transfer.task.cancelled():
            transfer.task.exception()  # whoever shows the session says it, unless the session has ended


async def outcome(transfer: Transfer) -> str | CcbError | None:
    """Wait for a copy. Return the path that was written, the error, or None if it was broken off. Cancelling this does
    not break it off."""
    await asyncio.wait({transfer.task})
    if transfer.task.cancelled():
        return None
    error = transfer.task.exception()
    if isinstance(error, CcbError):
        return error
    return transfer.task.result()
