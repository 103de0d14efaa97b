"""The ports of this host: which the processes of the session listen on, and the bytes of a channel to one of them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Callable

from ccb.tunnel.wire.channels import BLOCK, Channel, carry
from ccb.tunnel.wire.frames import Json

from ..system.deadline import first_of, in_thread, within
from ..system.listeners import can_be_read, listeners_below, listeners_named

LOOPBACK = "127.0.0.1"
_CONNECT_S = 10.0
MAX_WAITING = 32  # connections to one port of the laptop
WAIT_S = 600.0  # seconds that a connection may have waited when the laptop comes
_LOOK_S = 1.0
_NEXT_S = 5.0  # seconds that a port without a channel stays, so that no other user of the host takes it


class PortWatch:
    """Looks for ports while something `runs` that may open some. Where the system does not tell who listens, the
    `outputs` of commands do."""

    def __init__(self, runs: Callable[[], bool], outputs: Callable[[], Iterable[tuple[str, str]]] = tuple) -> None:
        self._runs, self._outputs = runs, outputs
        self._found: dict[int, str] = {}

    @property
    def body(self) -> Json:
        """The body of a `listening` frame."""
        return {"ports": [{"port": port, "name": name} for port, name in self._found.items()]}

    async def run(self, changed: Callable[[], None]) -> None:
        """Look for ever, and call `changed` when they are others."""
        while True:
            await asyncio.sleep(_LOOK_S)
            found: dict[int, str] = {}
            if self._runs() and can_be_read():
                found = await in_thread(listeners_below, os.getpid())
            elif self._runs():
                found = listeners_named(self._outputs())
            if found != self._found:
                self._found = found
                changed()


async def serve_port(channel: Channel, body: Json, _role: str) -> None:
    """Carry bytes to a port of this host's loopback and back. Raise ValueError or OSError if none listens there."""
    await carry(channel, *await _connected(_port_of(body)))


def _port_of(body: Json) -> int:
    port = body.get("port")
    if type(port) is not int or not 0 < port < 65536:
        raise ValueError("a port is a number from 1 to 65535")
    return port


class LaptopPort:
    """A port of this host that leads to the laptop. Only the laptop opens channels, one for each connection: a line on
    it says that this listens, and one byte more that there is a connection, whose bytes follow."""

    def __init__(self) -> None:
        self.channels: set[Channel] = set()  # that wait for a connection or carry one
        self._server: asyncio.AbstractServer | None = None
        self._waiting: asyncio.Queue[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._closed = False

    async def listen(self, port: int) -> int:
        """Return the number of the port, a free one for 0. Raise OSError if it is in use."""
        self._closed = False
        self._server = await asyncio.start_server(self.accept, LOOPBACK, port, limit=BLOCK)
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    def close(self) -> None:
        self._closed = True
        if self._server is not None:
            self._server.close()
        while not self._waiting.empty():
            self._waiting.get_nowait()[2].close()

    @property
    def waiting(self) -> int:
        return self._waiting.qsize()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed or self.waiting >= MAX_WAITING:
            writer.close()
        else:
            self._waiting.put_nowait((time.monotonic(), reader, writer))

    async def carry_next(self, channel: Channel, line: str = "") -> None:
        """Carry the bytes of the next connection. Raise ChannelError or OSError."""
        self.channels.add(channel)
        taken: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def take() -> None:
            while not taken:
                came, reader, writer = await self._waiting.get()
                if time.monotonic() - came < WAIT_S:
                    taken.append((reader, writer))
                else:  # nobody may wait for its answer any more
                    writer.close()

        try:
            await channel.write(f"{line}\n".encode())
            await first_of(take(), channel.read())
            for reader, writer in taken:
                with closing(writer):
                    await channel.write(b"\n")
                    await carry(channel, reader, writer)
        finally:
            self.channels.discard(channel)


class ReversePorts:
    """The ports that listen for a laptop: each for as long as one of its channels waits or carries."""

    def __init__(self) -> None:
        self._ports: dict[int, LaptopPort] = {}

    async def serve(self, channel: Channel, body: Json, _role: str) -> None:
        """Carry the next connection. Raise ValueError, or OSError if the port is in use, such as by another laptop."""
        number = _port_of(body)
        port = self._ports.get(number)
        others = [each for each in port.channels if each.table is not channel.table] if port is not None else []
        if port is None or any(each.is_live for each in others):
            port = LaptopPort()
            await port.listen(number)
            self._ports[number] = port
        for other in others:
            other.broken("another client of the session has the port")  # it is away, and may be this one before
        ends_in_s = 0.0
        try:
            await port.carry_next(channel)
        except OSError:  # a program of the host broke off, maybe before the laptop could open the next channel
            ends_in_s = _NEXT_S
            raise
        finally:
            asyncio.get_running_loop().call_later(ends_in_s, self._close_unused, number)

    def _close_unused(self, number: int) -> None:
        port = self._ports.get(number)
        if port is not None and not port.channels:
            port.close()
            del self._ports[number]


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    failure: OSError | None = None
    for address in (LOOPBACK, "::1"):
        try:
            return await within(_CONNECT_S, asyncio.open_connection(address, port, limit=BLOCK))
        except (OSError, asyncio.TimeoutError) as error:
            failure = failure or OSError("nothing answers on port %d: %s" % (port, error))
    assert failure is not None
    raise failure
