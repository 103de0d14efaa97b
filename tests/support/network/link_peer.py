"""The host's end of a link for tests: a real socket pair, frames in and out, whatever order a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.wire.frames import PROTOCOL, Event, Frame, Hello, Json
from ccb.tunnel.wire.ndjson import FrameDecoder, encode_frame

F = TypeVar("F")

HELLO = Hello(
    protocol=PROTOCOL,
    bundle="b" * 64,
    session="11111111-2222-4333-8444-555555555555",
    pid=4711,
    python="3.9.18",
    platform="linux-x86_64",
    cwd="/srv/app",
    epoch=0,
    seq=0,
    state="idle",
)


class SocketPipe:
    """A `Pipe` over one end of a socket pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.stderr = ""

    async def read(self, n: int = 65536) -> bytes:
        try:
            return await self._reader.read(n)
        except OSError as error:
            raise ConnectionLost("the socket broke", evidence=str(error)) from error

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise ConnectionLost("the socket broke", evidence=str(error)) from error

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def exit_status(self) -> int | None:
        return None

    def stderr_tail(self) -> str:
        return self.stderr


class Peer:
    """Speaks for the host. `next(kind)` skips frames of other kinds."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []
        self._seq = 0

    async def send(self, *frames: Frame) -> None:
        for frame in frames:
            for line in encode_frame(frame):
                await self.send_bytes(line)

    async def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def say(self, body: Json, kind: str = "message") -> None:
        """The next event of the session."""
        self._seq += 1
        await self.send(Event(self._seq, 1, kind, body))

    async def hello(self, **changes: object) -> None:
        await self.send(replace(HELLO, **changes))  # type: ignore[arg-type]

    async def next(self, kind: type[F], timeout: float = 60) -> F:
        async with asyncio.timeout(timeout):
            while True:
                while self._frames:
                    frame = self._frames.pop(0)
                    if isinstance(frame, kind):
                        return frame
                data = await self._reader.read(65536)
                assert data, f"the laptop closed before a {kind.__name__}"
                self._frames += self._decoder.feed(data)

    async def ended(self, timeout: float = 60) -> None:
        async with asyncio.timeout(timeout):
            while await self._reader.read(65536):
                pass

    def hang_up(self) -> None:
        self._writer.close()


@asynccontextmanager
async def link_pair() -> AsyncIterator[tuple[SocketPipe, Peer]]:
    """A pipe for a `Link` and the peer at its other end."""
    async with AsyncExitStack() as stack:
        sockets = socket.socketpair()
        for end in sockets:
            stack.callback(end.close)
        pipe = SocketPipe(*await asyncio.open_connection(sock=sockets[0]))
        stack.push_async_callback(pipe.close)
        reader, writer = await asyncio.open_connection(sock=sockets[1])
        stack.push_async_callback(_close, writer)
        yield pipe, Peer(reader, writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
