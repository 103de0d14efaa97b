"""Lets an agent of others call models: it connects to this host, and the laptop's auth proxy answers.

The relay knows nothing of HTTP. It listens for this user alone, and its connections wait until the laptop opens a
channel for each. The token in their paths is all that the agent has: it is in the memory of this worker and in that of
the agent, and the laptop compares it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets

from ccb.tunnel.wire.channels import BLOCK, Channel, ChannelError
from ccb.tunnel.wire.frames import Json

from ..system.deadline import in_thread
from ..system.listeners import owner_of_connection
from .ports import WaitingConnections

log = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 32  # of the agent, at the same time
WAIT_S = 600.0  # seconds that a connection waits for the laptop


class ModelRelay:
    """Listens on a loopback port, in its context."""

    def __init__(self, connections: WaitingConnections) -> None:
        self._connections = connections
        self._token = secrets.token_urlsafe(32)
        self._server: asyncio.AbstractServer | None = None
        self._port = 0
        self._own: set[int] = set()
        self._looks = 0  # connections whose users are looked up
        self._laptop: Channel | None = None  # that of the client that answers

    @property
    def url(self) -> str:
        """The address for the agent, with the token: for its memory or environment, not its arguments or a file."""
        return f"http://{_LOOPBACK}:{self._port}/{self._token}"

    async def __aenter__(self) -> ModelRelay:
        self._server = server = await asyncio.start_server(self._accept, _LOOPBACK, 0, limit=BLOCK)
        self._port = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._connections.close(list(self._own))

    async def serve(self, channel: Channel, _body: Json, role: str) -> None:
        """Tell the laptop the token, and each connection by its number. The last laptop that asks answers. Raise
        ValueError for one that does not drive the session."""
        if role != "driver":
            raise ValueError("only who drives the session answers its model calls")
        before, self._laptop = self._laptop, channel
        if before is not None:
            self._connections.reset(self._own)  # that client may be away for long: the agent asks again
            await before.close("another client of the session answers its model calls")
        try:
            lines = [self._token, *map(str, self._connections.waiting(self._own))]
            await channel.write("".join(f"{line}\n" for line in lines).encode())
            while await channel.read():
                pass
        finally:
            if self._laptop is channel:
                self._laptop = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection. Any user of the host can connect to the loopback: the kernel says who has."""
        if max(len(self._own), self._looks) >= MAX_CONNECTIONS:  # before a look, which takes long in a crowd
            writer.close()
            return
        self._looks += 1
        try:
            ends = map(writer.get_extra_info, ("peername", "sockname"))  # the socket forgets those of what has ended
            owner = await in_thread(owner_of_connection, *ends)
        finally:
            self._looks -= 1
        if owner not in (None, os.geteuid()):
            log.warning("a process of another user (uid %d) connected to the model relay, and was refused", owner)
            writer.close()
        elif len(self._own) >= MAX_CONNECTIONS or self._server is None:
            writer.close()
        else:
            number = self._connections.add(reader, writer, self._own, driver_only=True)
            asyncio.get_running_loop().call_later(WAIT_S, self._connections.close, [number])
            if self._laptop is not None:
                with contextlib.suppress(ChannelError):  # the next laptop is told of all that wait
                    await self._laptop.write(b"%d\n" % number)
