"""The ports of this host: which the processes of the session listen on, and the bytes of a channel to one of them."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterable
from typing import Callable

from ccb.tunnel.wire.channels import BLOCK, Channel, ChannelError, carry
from ccb.tunnel.wire.frames import Json

from ..system.deadline import in_thread, within
from ..system.listeners import Listener, can_be_read, listeners_below, listeners_named

_LOOPBACK = ("127.0.0.1", "::1")
_CONNECT_S = 10.0
MAX_REVERSED = 32  # connections to one port of the laptop
_LOOK_S = 1.0


class PortWatch:
    """Looks for ports while something `runs` that may open some. Where the system does not tell who listens, the
    `outputs` of commands do."""

    def __init__(self, runs: Callable[[], bool], outputs: Callable[[], Iterable[tuple[str, str]]] = tuple) -> None:
        self._runs, self._outputs = runs, outputs
        self._found: list[Listener] = []

    @property
    def body(self) -> Json:
        """The body of a `listening` frame."""
        return {"ports": [{"port": each.port, "name": each.name, "pid": each.pid} for each in self._found]}

    async def run(self, changed: Callable[[], None]) -> None:
        """Look for ever, and call `changed` when they are others."""
        while True:
            await asyncio.sleep(_LOOK_S)
            found: list[Listener] = []
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


class WaitingConnections:
    """Connections to this host that lead to the laptop. Only the laptop opens channels: it is told of each connection
    by a number, a line each, and opens another channel for that."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter, set[int], bool]] = {}
        self._carrying: dict[int, asyncio.Task[None] | None] = {}
        self._numbers = itertools.count(1)

    def add(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, own: set[int], *, driver_only: bool = False
    ) -> int:
        """Let a connection wait, and return its number. `own` are those of its listener that wait or are carried.
        `driver_only`: no viewer may have it."""
        number = next(self._numbers)
        own.add(number)
        self._waiting[number] = reader, writer, own, driver_only
        return number

    def waiting(self, own: set[int]) -> list[int]:
        return sorted(own.intersection(self._waiting))

    def close(self, numbers: Iterable[int]) -> None:
        """Close those of these connections that still wait."""
        for number in numbers:
            _, writer, own, _ = self._waiting.pop(number, (None, None, set[int](), False))
            own.discard(number)
            if writer is not None:
                writer.close()

    def reset(self, numbers: Iterable[int]) -> None:
        """Break off those of these connections that are carried."""
        for task in filter(None, map(self._carrying.get, numbers)):
            task.cancel()

    async def carry(self, channel: Channel, body: Json, role: str) -> None:
        """Carry the bytes of a connection that waits. Raise ValueError."""
        number: int = body["connection"] if type(body.get("connection")) is int else 0
        waiting = self._waiting.get(number)
        if waiting is None:
            raise ValueError("the connection has ended")
        reader, writer, own, driver_only = waiting
        if driver_only and role != "driver":
            raise ValueError("only who drives the session may have this connection")
        del self._waiting[number]
        self._carrying[number] = asyncio.current_task()
        try:
            await carry(channel, reader, writer)
        finally:
            del self._carrying[number]
            own.discard(number)


class ReversePorts:
    """Ports of this host that lead to the laptop, over `connections`."""

    def __init__(self, connections: WaitingConnections) -> None:
        self._connections = connections

    async def listen(self, channel: Channel, body: Json, _role: str) -> None:
        """Listen until the laptop closes the channel. Raise ValueError, or OSError if the port is in use."""
        own: set[int] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(own) >= MAX_REVERSED:
                writer.close()
                return
            number = self._connections.add(reader, writer, own)
            try:
                await channel.write(b"%d\n" % number)
            except ChannelError:  # it has ended meanwhile
                self._connections.close([number])

        server = await asyncio.start_server(accept, _LOOPBACK[0], _port_of(body), limit=BLOCK)
        try:
            await channel.write(b"\n")
            while await channel.read():
                pass
        finally:
            server.close()
            self._connections.close(list(own))


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    failure: OSError | None = None
    for address in _LOOPBACK:
        try:
            return await within(_CONNECT_S, asyncio.open_connection(address, port, limit=BLOCK))
        except (OSError, asyncio.TimeoutError) as error:
            failure = failure or OSError("nothing answers on port %d: %s" % (port, error))
    assert failure is not None
    raise failure
