"""Serves the channels that one client opens: bytes to a port of this host, for example."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Callable

from ccb.tunnel.wire.channels import Channel, ChannelError, ChannelFrame, Channels
from ccb.tunnel.wire.frames import ChannelCredit, ChannelEnd, ChannelOpen, Json

from ..session_store.client_outbox import ClientOutbox

log = logging.getLogger(__name__)

ServeChannel = Callable[[Channel, Json], Awaitable[None]]
"""Serves a channel until it is over. Raise ValueError or OSError with the reason for the client."""


class ClientChannels:
    """The channels of one connection. `kinds` are what may be opened."""

    def __init__(self, outbox: ClientOutbox, kinds: Mapping[str, ServeChannel]) -> None:
        self._outbox = outbox
        self._kinds = kinds
        self._channels = Channels(self._send)
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, frame: ChannelOpen) -> None:
        try:
            channel = self._channels.add(frame.channel, frame.epoch)
        except ChannelError as error:
            self._outbox.control(ChannelEnd(frame.epoch, frame.channel, str(error)))
            return
        task = asyncio.get_running_loop().create_task(self._serve(channel, frame.kind, frame.body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def take(self, frame: ChannelFrame) -> None:
        self._channels.take(frame)

    async def close(self) -> None:
        self._channels.lost("the connection has ended")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, channel: Channel, kind: str, body: Json) -> None:
        serve = self._kinds.get(kind)
        async with channel:
            try:
                if serve is None:
                    raise ValueError("this worker has no %s to open" % kind)
                await serve(channel, body)
            except ChannelError as error:
                log.info("channel %d (%s): %s", channel.number, kind, error)
            except (ValueError, OSError) as error:
                await channel.close(str(error))

    async def _send(self, frame: ChannelFrame) -> None:
        if isinstance(frame, ChannelCredit):
            self._outbox.control(frame)
        else:
            await self._outbox.bulk(frame)
