"""A TCP relay that makes a link slow, frozen or dead. See ../README.md."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_CHUNK = 65536
_KEPT = 256 * 1024

SLOW_S = 0.15
"""How much longer each way is in a `slow` fault."""


@dataclass
class Fault:
    """What happens to the connection that carries byte `at` of one direction, counted over all connections or, with
    `connection`, over the connection of that number (the first is 1); everything before it is delivered. `kind`:
    `reset` (RST), `close` (FIN), `repeat` (the last bytes come twice), `double` (a second connection brings the server
    all that the client has sent on this one), `freeze` (nothing moves for `seconds`), `slow` (`SLOW_S` more each way
    for `seconds`), `call` (`act` is awaited)."""

    kind: str
    at: int
    upward: bool
    seconds: float = 0.0
    act: Callable[[], Awaitable[None]] | None = None
    connection: int = 0
    happened: bool = False


@dataclass
class _Connection:
    """One client's connection: which it is, what it carried, and the first bytes that its client sent."""

    number: int
    up: int = 0
    down: int = 0
    sent: bytearray = field(default_factory=bytearray)


@dataclass
class Relay:
    """What it does to every connection, changeable while it runs.

    `delay_s` is each way. `frozen`: bytes are taken from nobody, and no connection is closed or accepted. `faults`
    happen once each. `up`, `down` and `connections` count; `turns` is how often the client spoke after the server had.
    """

    port: int = 0
    delay_s: float = 0.0
    up: int = 0
    down: int = 0
    connections: int = 0
    turns: int = 0
    faults: list[Fault] = field(default_factory=list)
    target_port: int = 0
    _client_spoke: bool = True
    _thawed: asyncio.Event = field(default_factory=asyncio.Event)
    _live: set[asyncio.WriteTransport] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._thawed.set()

    @property
    def frozen(self) -> bool:
        return not self._thawed.is_set()

    def freeze(self) -> None:
        """From now on nothing moves, and nobody is told."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def cut(self) -> None:
        """Reset every connection now."""
        for transport in list(self._live):
            transport.abort()

    def _count(self, connection: _Connection, data: bytes, *, upward: bool) -> None:
        self.turns += upward and not self._client_spoke
        self._client_spoke = upward
        if upward:
            self.up += len(data)
            connection.up += len(data)
            connection.sent += data[: _KEPT - len(connection.sent)]
        else:
            self.down += len(data)
            connection.down += len(data)

    def _due(self, connection: _Connection, count: int, *, upward: bool) -> tuple[Fault, int] | None:
        """The first fault of that direction in the next `count` bytes, and how many of them come before it."""
        due = [
            (fault, fault.at - self._seen(fault, connection))
            for fault in self.faults
            if not fault.happened and fault.upward == upward and fault.connection in (0, connection.number)
        ]
        return min((f for f in due if 0 < f[1] <= count), key=lambda found: found[1], default=None)

    def _seen(self, fault: Fault, connection: _Connection) -> int:
        counter = connection if fault.connection else self
        return counter.up if fault.upward else counter.down

    async def _double(self, connection: _Connection) -> None:
        """What a middlebox does that lost track: the client's bytes once more, on a connection nobody listens to."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        try:
            async with asyncio.timeout(1.0):
                writer.write(bytes(connection.sent))
                await writer.drain()
                while await reader.read(_CHUNK):
                    pass
        except (TimeoutError, OSError):
            pass
        finally:
            writer.transport.abort()

    async def _happen(self, fault: Fault, connection: _Connection, writer: asyncio.StreamWriter, last: bytes) -> None:
        fault.happened = True
        match fault.kind:
            case "reset":
                self.cut()
            case "close":
                for transport in list(self._live):
                    transport.close()
            case "repeat":
                writer.write(last)
                await writer.drain()
            case "freeze":
                self.freeze()
                await asyncio.sleep(fault.seconds)
                self.thaw()
            case "double":
                await self._double(connection)
            case "slow":
                self.delay_s += SLOW_S
                asyncio.get_running_loop().call_later(fault.seconds, self._quicker)
            case _:
                assert fault.act is not None
                await fault.act()

    def _quicker(self) -> None:
        self.delay_s = max(0.0, self.delay_s - SLOW_S)

    async def _pass(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, upward: bool
    ) -> None:
        """One direction of one connection: each chunk leaves `delay_s` after it came, in order."""
        queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(maxsize=256)

        async def deliver() -> None:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await self._thawed.wait()
                if data is None:
                    with contextlib.suppress(OSError, RuntimeError):
                        writer.write_eof()
                    return
                if data:
                    writer.write(data)
                    await writer.drain()
                queue.task_done()

        delivery = asyncio.create_task(deliver())
        try:
            while True:
                await self._thawed.wait()
                data = await reader.read(_CHUNK)
                due = self._due(connection, len(data), upward=upward)
                if due is not None:
                    fault, here = due
                    await queue.put((time.monotonic() + self.delay_s, data[:here]))
                    await _either(asyncio.ensure_future(queue.join()), delivery)
                    self._count(connection, data[:here], upward=upward)
                    await self._happen(fault, connection, writer, data[:here])
                    if fault.kind in ("reset", "close"):
                        return
                    data = data[here:]
                    if not data:
                        continue
                self._count(connection, data, upward=upward)
                await queue.put((time.monotonic() + self.delay_s, data or None))
                if not data:
                    await delivery
                    return
        finally:
            delivery.cancel()
            await asyncio.gather(delivery, return_exceptions=True)


@asynccontextmanager
async def relay(target_port: int, *, delay_s: float = 0.0, port: int = 0) -> AsyncIterator[Relay]:
    """Run a relay on a port of 127.0.0.1 (0: a free one) to `target_port` there. `delay_s` is one way: half the round
    trip."""
    link = Relay(delay_s=delay_s, target_port=target_port)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link.connections += 1
        connection = _Connection(link.connections)
        try:
            await asyncio.sleep(link.delay_s * 2)  # the TCP handshake of a real link
            await link._thawed.wait()
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target_port, limit=_CHUNK)
        except BaseException:
            writer.transport.abort()
            raise
        transports: list[asyncio.WriteTransport] = [writer.transport, there_writer.transport]
        link._live.update(transports)
        try:
            await asyncio.gather(
                link._pass(connection, reader, there_writer, upward=True),
                link._pass(connection, there_reader, writer, upward=False),
            )
        finally:
            for transport in transports:
                link._live.discard(transport)
                transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_quietly(serve(reader, writer)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", port, limit=_CHUNK)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        link.thaw()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def _quietly(work: object) -> None:
    with contextlib.suppress(OSError):
        await work  # type: ignore[misc]


async def _either(waiting: asyncio.Future[None], other: asyncio.Task[None]) -> None:
    try:
        await asyncio.wait({waiting, other}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
