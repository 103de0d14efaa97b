"""A host that says what a test wants, over as many connections as the laptop makes: for tests of one `Session`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.support.network.link_peer import HELLO, Peer, link_pair

from ccb.local.session.dialing import AttachOptions, KnownSession, WorkerConnection
from ccb.local.session.remote_session import RemoteSession
from ccb.local.session.session_client import Item
from ccb.tunnel.errors import CcbError
from ccb.tunnel.link.link import Link
from ccb.tunnel.wire.frames import Attach, Attached


async def no_calls(frame: object) -> None:
    raise AssertionError(f"unexpected {frame}")


class ScriptedHost:
    """`dial` is what a session dials. Each gives a `Peer` (`next_peer`), whose `greeting` has been sent, or raises the
    next of `refusals`; while it is `hanging` it has no end. `dials` counts, and says whether the person could have been
    asked."""

    def __init__(self) -> None:
        self.greeting = replace(HELLO, seq=1_000_000)  # it has lost nothing, whatever a test sends
        self.refusals: list[CcbError] = []
        self.hanging = False
        self.dials: list[bool] = []
        self.known: list[KnownSession | None] = []
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()

    @asynccontextmanager
    async def dial(self, known: KnownSession | None, ask: bool) -> AsyncIterator[WorkerConnection]:
        self.dials.append(ask)
        self.known.append(known)
        if self.refusals:
            raise self.refusals.pop(0)
        if self.hanging:
            await asyncio.Event().wait()
        async with link_pair() as (pipe, peer), Link(pipe) as link:
            await peer.hello(
                **{
                    name: getattr(self.greeting, name)
                    for name in ("epoch", "seq", "state", "driver", "storage", "capabilities")
                }
            )
            hello = await link.hello()
            self._peers.put_nowait(peer)
            yield WorkerConnection(link, hello)

    async def next_peer(self) -> Peer:
        async with asyncio.timeout(60):
            return await self._peers.get()

    async def granted(self, *, role: str = "driver", seq: int = 0, driver: str = "") -> tuple[Peer, Attach]:
        """The next connection, once it has attached and that was granted."""
        peer = await self.next_peer()
        attach = await peer.next(Attach)
        self.greeting = replace(self.greeting, epoch=attach.epoch)
        await peer.send(Attached(attach.epoch, role, seq, driver))
        return peer, attach


def no_waits() -> Iterator[float]:
    while True:
        yield 0.0


@asynccontextmanager
async def session_on(
    host: ScriptedHost, terms: AttachOptions | None = None
) -> AsyncIterator[tuple[RemoteSession, Peer]]:
    async with RemoteSession(host.dial, replace(terms or AttachOptions(), waits=no_waits)) as session:
        peer, _ = await host.granted()
        yield session, peer


@asynccontextmanager
async def read_by(session: RemoteSession, take: Callable[[Item], None]) -> AsyncIterator[None]:
    """Give `take` each item of a session while the block runs."""

    async def read() -> None:
        async for item in session.events():
            take(item)

    reading = asyncio.create_task(read())
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
