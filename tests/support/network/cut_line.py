"""The worker's model calls and the auth proxy over a connection that ends at a chosen byte, with real frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Self

from ccb.remote.daemon.model_streams import ModelStreams, StreamLink
from ccb.tunnel.link.link import new_nonce
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.link_front import LinkFront
from ccb.tunnel.secret import Secret
from ccb.tunnel.wire.frames import Frame
from ccb.tunnel.wire.ndjson import FrameDecoder, encode_frame

_MAX_QUEUED = 8  # frames of a request body on their way


class CutLine:
    """One connection between `calls` and `proxy`, with a nonce of its own. After `cut_down` bytes from the worker or
    `cut_up` bytes to it nothing moves any more, and `dead` is set. `down` and `up` count what arrived. `shown` is a
    nonce for the worker that is not the one of the connection. With `deltas` the laptop makes request bodies of
    earlier ones."""

    def __init__(
        self,
        calls: ModelStreams,
        proxy: AuthProxy,
        epoch: int,
        *,
        cut_down: int | None = None,
        cut_up: int | None = None,
        shown: Secret | None = None,
        deltas: bool = False,
    ) -> None:
        self.nonce = new_nonce()
        self._shown = shown or self.nonce
        self.dead = asyncio.Event()
        self.down = self.up = 0
        self._calls = calls
        self._cuts = {"down": cut_down, "up": cut_up}
        self._epoch = epoch
        self._to_laptop: asyncio.Queue[Frame] = asyncio.Queue()
        self._to_worker: asyncio.Queue[Frame] = asyncio.Queue(_MAX_QUEUED)
        self._inband = LinkFront(proxy, self._to_worker.put, self.nonce, epoch=epoch, packs=deltas)
        nonce, urgent = self._shown.reveal(), self._to_laptop.put_nowait
        self._line = StreamLink(epoch, "laptop", nonce, urgent, self._bulk, deltas=deltas, primed=deltas)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._inband.__aenter__()
        self._tasks = [asyncio.create_task(self._carry_down()), asyncio.create_task(self._carry_up())]
        self._calls.attach(self._line)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._calls.detach(self._line)
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._inband.__aexit__(None, None, None)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def until_over(self, work: asyncio.Task[bytes], timeout: float = 60) -> None:
        """Wait until `work` is done or the connection is."""
        dead = asyncio.create_task(self.dead.wait())
        try:
            watched = {work, dead, *self._tasks}
            done, _ = await asyncio.wait(watched, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            assert done, f"neither over nor cut; {self.down} bytes down, {self.up} up"
        finally:
            dead.cancel()
            await asyncio.gather(dead, return_exceptions=True)

    async def read_out(self) -> None:
        """Wait until the laptop holds nothing for a stream of the worker."""
        await self._inband.read_out()

    async def _bulk(self, frame: Frame) -> None:
        while self._to_laptop.qsize() >= _MAX_QUEUED:
            await asyncio.sleep(0)
        self._to_laptop.put_nowait(frame)

    async def _carry_down(self) -> None:
        async for frame in self._arriving(self._to_laptop, "down"):
            await self._inband.handle(frame)  # type: ignore[arg-type]

    async def _carry_up(self) -> None:
        async for frame in self._arriving(self._to_worker, "up"):
            self._calls.handle(self._line, frame)  # type: ignore[arg-type]

    async def _arriving(self, queue: asyncio.Queue[Frame], way: str) -> AsyncIterator[Frame]:
        decoder = FrameDecoder()
        while True:
            data, cut, before = b"".join(encode_frame(await queue.get())), self._cuts[way], getattr(self, way)
            left = data if cut is None else data[: max(0, cut - before)]
            setattr(self, way, before + len(left))
            for frame in decoder.feed(left):
                yield frame
            if len(left) < len(data):
                await self._die()

    async def _die(self) -> None:
        self._cuts = {"down": self.down, "up": self.up}
        self.dead.set()
        await asyncio.Event().wait()
