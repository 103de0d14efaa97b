"""A session's real daemon in this process, and connections to it whose bytes stay in flight until a test moves them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from ccb.remote.daemon.daemon import Daemon
from ccb.remote.daemon.hello import DaemonLaunch
from ccb.remote.session_store.node_claim import UNSHARED
from ccb.remote.session_store.session_paths import SessionPaths
from ccb.tunnel.errors import ConnectionLost

SESSION = "11111111-2222-4333-8444-555555555555"


class Wire:
    """One connection. It is the laptop's `Pipe`; the host's end is a real socket. What an end writes stays in `up` or
    `down` until `move` (at once while `free`); a connection that the laptop has lost or left may live on at the host
    until `bury`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, free: bool = True) -> None:
        self.up = bytearray()
        self.down = bytearray()
        self.free = free
        self.lost = False
        self.sent_up = bytearray()
        self.sent_down = bytearray()
        self._writer = writer
        self._arrived = bytearray()
        self._news = asyncio.Event()
        self._host_left = False
        self._taking = asyncio.create_task(self._take(reader))

    async def read(self, n: int = 65536) -> bytes:
        while not self._arrived:
            if self.lost:
                raise ConnectionLost("the wire was cut")
            if self._host_left and not self.down:
                return b""
            self._news.clear()
            await self._news.wait()
        data = bytes(self._arrived[:n])
        del self._arrived[:n]
        return data

    async def write(self, data: bytes) -> None:
        if self.lost:
            raise ConnectionLost("the wire was cut")
        self.up += data
        self.sent_up += data
        self._flow()

    async def close(self) -> None:
        """The laptop leaves; what it has written is still on its way."""
        self.lost = True
        self._news.set()

    async def exit_status(self) -> int | None:
        return None

    def stderr_tail(self) -> str:
        return ""

    def move(self, up: int, down: int) -> None:
        """Let per cents of what is in flight arrive."""
        count = len(self.up) * up // 100
        if count and not self._writer.transport.is_closing():
            self._writer.write(bytes(self.up[:count]))
        del self.up[:count]
        count = len(self.down) * down // 100
        if not self.lost:
            self._arrived += self.down[:count]
        del self.down[:count]
        self._news.set()

    def release(self, *, free: bool) -> None:
        self.free = free
        self._flow()

    def cut(self, up: int, down: int, *, host_knows: bool) -> None:
        """The laptop loses the connection after these per cents; the host may believe for longer that it lives."""
        self.move(up, down)
        self.lost = True
        self._news.set()
        if host_knows:
            self.bury()

    def bury(self) -> None:
        """The host's end is over."""
        self.up.clear()
        self._writer.transport.abort()

    def repeat(self, line: bytes, *, up: bool) -> None:
        """Put a whole line between those in flight."""
        flight, sent = (self.up, self.sent_up) if up else (self.down, self.sent_down)
        if sent and not sent.endswith(b"\n"):
            return
        flight += line
        self._flow()

    async def end(self) -> None:
        self.lost = True
        self._news.set()
        self.bury()
        self._taking.cancel()
        await asyncio.gather(self._taking, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _take(self, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(65536):
                self.down += data
                self.sent_down += data
                self._flow()
        except OSError:
            pass
        self._host_left = True
        self._news.set()

    def _flow(self) -> None:
        if self.free:
            self.move(100, 100)


def frames_in(data: bytes) -> list[bytes]:
    """The whole frames of one line each in what was sent over a connection, but for those that make and end one."""
    lines = [line + b"\n" for line in bytes(data).split(b"\n")[:-1]]
    return [line for line in lines if json.loads(line)["t"] not in ("part", "hello", "attach", "detach", "bye")]


class InProcessHost:
    """Runs one daemon. `connect` is what the bridge does."""

    def __init__(self, directory: Path) -> None:
        state, runtime = directory / "state", directory / "run"
        for each in (state, runtime):
            each.mkdir(mode=0o700, exist_ok=True)
        self._where = SessionPaths(str(state), str(runtime), "s", True, [])
        facts: dict[str, object] = {
            "bundle": "b" * 64, "session": SESSION, "cwd": str(directory), "storage": "disk", "notes": [],
        }  # fmt: skip
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.daemon = Daemon(DaemonLaunch(self._where, facts, {}, None, self._listener, (-1, -1), UNSHARED))
        self.wires: list[Wire] = []
        self._anchor: socket.socket | None = None
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        Path(self._where.socket).unlink(missing_ok=True)
        self._listener.bind(self._where.socket)
        self._listener.listen(16)
        self._anchor, first = socket.socketpair()  # a client that only keeps the daemon alive
        self._running = asyncio.create_task(self.daemon.run(self._listener, first))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None and self._anchor is not None
        await asyncio.gather(*(wire.end() for wire in self.wires))
        self._anchor.close()
        self.daemon.stop()
        async with asyncio.timeout(60):
            await self._running

    async def connect(self, *, free: bool) -> Wire:
        """A new connection, whose hello is on its way."""
        wire = Wire(*await asyncio.open_unix_connection(self._where.socket), free=free)
        self.wires.append(wire)
        return wire


@asynccontextmanager
async def in_process_host() -> AsyncIterator[InProcessHost]:
    """A running daemon with an empty session in a directory of its own."""
    hangup = signal.getsignal(signal.SIGHUP)
    with tempfile.TemporaryDirectory(prefix="ccb-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        try:
            async with InProcessHost(Path(directory)) as host:
                yield host
        finally:
            signal.signal(signal.SIGHUP, hangup)
