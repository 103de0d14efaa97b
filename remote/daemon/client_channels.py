"""Serves the channels that one client opens: bytes to a port of this host, for example."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Callable

from ccb.tunnel.wire.channels import MAX_CHANNELS, Channel, ChannelError, ChannelFrame, Channels
from ccb.tunnel.wire.frames import ChannelEnd, ChannelOpen, Json

from ..session_store.client_outbox import ClientOutbox

log = logging.getLogger(__name__)

ServeChannel = Callable[[Channel, Json, str], Awaitable[None]]
"""Serves a channel until it is over, with the role of its client. Raise ValueError or OSError with the
reason for the client."""

_MAX_OPENED = 2 * MAX_CHANNELS
AWAY_S = 600.0  # seconds that the channels of a client wait for its next connection


class ClientChannels:
    """The channels of one client, over all its connections. `kinds` are what may be opened."""

    def __init__(self, kinds: Mapping[str, ServeChannel]) -> None:
        self._kinds = kinds
        self._channels = Channels()
        self._opened: dict[int, str] = {}  # why each has ended: the client may not have heard of the last ones
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox: ClientOutbox | None = None
        self._away: asyncio.TimerHandle | None = None

    def attached(self, outbox: ClientOutbox, numbers: list[int]) -> None:
        """Continue over a new connection those channels that the client still has. It has given its last one up."""
        if self._away is not None:
            self._away.cancel()
            self._away = None
        if self._outbox is not None:
            self._outbox.close()
        self._outbox = outbox
        self._channels.lost()
        self._channels.keep_only(numbers)

        async def send(frame: ChannelFrame | ChannelOpen) -> None:
            await outbox.bulk(frame)
            if outbox.closing:
                raise ChannelError("the connection is lost")

        self._channels.back(send)

    @property
    def idle(self) -> bool:
        return self._outbox is None and self._away is None and not self._tasks

    def left(self, outbox: ClientOutbox) -> None:
        """Note that a connection is lost. If the client does not come back, its channels end."""
        if self._outbox is outbox:
            self._outbox = None
            self._channels.lost()
            loop = asyncio.get_running_loop()
            self._away = loop.call_later(AWAY_S, self._give_up)

    def _give_up(self) -> None:
        self._away = None
        self._channels.end("the client did not come back")

    def take(self, frame: ChannelFrame | ChannelOpen, outbox: ClientOutbox) -> None:
        """Take a frame. One that comes late, over an earlier connection, is ignored: it is sent again."""
        if outbox is not self._outbox:
            return
        if isinstance(frame, ChannelOpen):
            self._open(frame, outbox)
        else:
            self._channels.take(frame)

    def _open(self, frame: ChannelOpen, outbox: ClientOutbox) -> None:
        if self._channels.get(frame.channel) is not None:
            return  # it goes on, see `attached`
        try:
            if frame.begun or frame.channel in self._opened:
                raise ChannelError(self._opened.get(frame.channel) or "it has ended meanwhile")
            channel = self._channels.add(frame.channel)
        except ChannelError as error:
            outbox.control(ChannelEnd(frame.channel, str(error)))
            return
        self._opened[frame.channel] = ""
        while len(self._opened) > _MAX_OPENED:
            del self._opened[next(iter(self._opened))]
        task = asyncio.get_running_loop().create_task(self._serve(channel, frame, outbox.role))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        if self._away is not None:
            self._away.cancel()
        self._channels.lost()  # a client that reads nothing holds up no end
        self._channels.end("the worker ends")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, channel: Channel, opened: ChannelOpen, role: str) -> None:
        serve = self._kinds.get(opened.kind)
        async with channel:
            try:
                if serve is None:
                    raise ValueError("this worker has no %s to open" % opened.kind)
                await serve(channel, opened.body, role)
                channel.end()
                await channel.over()
            except (ChannelError, ValueError, OSError) as error:
                log.info("channel %d (%s): %s", channel.number, opened.kind, error)
                self._opened[channel.number] = str(error)
                await channel.close(str(error))
