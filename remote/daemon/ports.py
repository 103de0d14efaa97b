"""The ports of this host: which the processes of the session listen on, and the bytes of a channel to one of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, Callable

from ccb.tunnel.wire.channels import Channel
from ccb.tunnel.wire.frames import Json

from ..system.deadline import in_thread, within
from ..system.listeners import Listener, listeners_below

_BLOCK = 64 * 1024
_LOOPBACK = ("127.0.0.1", "::1")
_CONNECT_S = 10.0
_LOOK_S = 1.0


class PortWatch:
    """Looks for ports while something `runs` that may open some, and calls `changed` when they are others."""

    def __init__(self, runs: Callable[[], bool], changed: Callable[[], None]) -> None:
        self._runs, self._changed = runs, changed
        self._found: list[Listener] = []

    @property
    def body(self) -> Json:
        """The body of a `listening` frame."""
        return {"ports": [{"port": each.port, "name": each.name, "pid": each.pid} for each in self._found]}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            found = await in_thread(listeners_below, os.getpid()) if self._runs() else []
            if found != self._found:
                self._found = found
                self._changed()


async def serve_port(channel: Channel, body: Json, _role: str) -> None:
    """Carry bytes to a port of this host's loopback and back. Raise ValueError or OSError if none listens there."""
    port = body.get("port")
    if type(port) is not int or not 0 < port < 65536:
        raise ValueError("a port is a number from 1 to 65535")
    reader, writer = await _connected(port)

    async def to_port() -> None:
        while data := await channel.read():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def from_port() -> None:
        while data := await reader.read(_BLOCK):
            await channel.write(data)
        channel.end()

    try:
        await both(to_port(), from_port())
    finally:
        writer.close()


async def both(one: Coroutine[Any, Any, None], other: Coroutine[Any, Any, None]) -> None:
    """Run both directions to their ends. The failure of one ends the other, and is raised."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    failure: OSError | None = None
    for address in _LOOPBACK:
        try:
            return await within(_CONNECT_S, asyncio.open_connection(address, port))
        except (OSError, asyncio.TimeoutError) as error:
            failure = failure or OSError("nothing answers on port %d: %s" % (port, error))
    assert failure is not None
    raise failure
