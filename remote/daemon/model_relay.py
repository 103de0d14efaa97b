"""Lets an agent of others call models: it connects to this host, and the laptop's auth proxy answers.

The relay knows nothing of HTTP. It listens for this user alone, and its connections wait until the laptop opens a
channel for each. The token in their paths is all that the agent has: it is in the memory of this worker and in that of
the agent, and the laptop compares it."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets

from ccb.tunnel.wire.channels import Channel
from ccb.tunnel.wire.frames import Json

from ..system.deadline import in_thread
from ..system.listeners import owner_of_connection
from .ports import LOOPBACK, MAX_WAITING, LaptopPort

log = logging.getLogger(__name__)


class ModelRelay(LaptopPort):
    """Listens on a free port. `url` is the address for the agent, with the token: for its memory or environment, not
    its arguments or a file."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self._token = secrets.token_urlsafe(32)
        self._looks = 0  # connections whose users are looked up

    async def open(self) -> str:
        """Listen until it is closed. Return `url`."""
        self.url = f"http://{LOOPBACK}:{await self.listen(0)}/{self._token}"
        return self.url

    async def serve(self, channel: Channel, _body: Json, role: str) -> None:
        """Tell the laptop the token, and carry the next connection. The last laptop that asks answers. Raise ValueError
        for one that does not drive the session."""
        if role != "driver":
            raise ValueError("only who drives the session answers its model calls")
        for other in [each for each in self.channels if each.table is not channel.table]:
            self.channels.discard(other)  # its client may be away for long: the agent asks again
            await other.close("another client of the session answers its model calls")
        await self.carry_next(channel, self._token)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection. Any user of the host can connect to the loopback: the kernel says who has."""
        if self._looks + self.waiting >= MAX_WAITING:  # before a look, which takes long in a crowd
            writer.close()
            return
        self._looks += 1
        try:
            ends = map(writer.get_extra_info, ("peername", "sockname"))  # the socket forgets those of what has ended
            owner = await in_thread(owner_of_connection, *ends)
        finally:
            self._looks -= 1
        if owner in (None, os.geteuid()):
            await super().accept(reader, writer)
        else:
            log.warning("a process of another user (uid %d) connected to the model relay, and was refused", owner)
            writer.close()
