"""The relay for model calls of foreign agents: who may connect, who answers, and what waits."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from tests.support.machine.waiting import until
from tests.tunnel.wire.test_channels import Wire

from ccb.remote.daemon import model_relay
from ccb.remote.daemon.model_relay import MAX_CONNECTIONS, ModelRelay
from ccb.remote.daemon.ports import WaitingConnections
from ccb.remote.system.listeners import owner_of_connection
from ccb.tunnel.wire.channels import Channel, ChannelError

_CONNECT = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
connection = socket.create_connection(("127.0.0.1", int(sys.argv[2])), source_address=(sys.argv[3], 0))
connection.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
try:
    sys.exit(connection.recv(1) != b"")
except ConnectionResetError:
    pass
"""


class RelayedHost:
    """A relay on the host, and laptops that open channels to it."""

    def __init__(self) -> None:
        self.connections = WaitingConnections()
        self.relay = ModelRelay(self.connections)
        self.wire = Wire()
        self.wire.connect()
        self._numbers = iter(range(1, 100))

    @asynccontextmanager
    async def laptop(self) -> AsyncIterator[Channel]:
        """Yield this laptop's end of the channel on which it is told of connections."""
        near, far = self.wire.channel(next(self._numbers))
        async with near, far:
            serving = asyncio.create_task(self.relay.serve(far, {}, "driver"))
            yield near
            near.end()
            await asyncio.gather(serving, return_exceptions=True)

    async def take(self, number: int, role: str) -> None:
        near, far = self.wire.channel(next(self._numbers))
        async with near, far:
            await self.connections.carry(far, {"connection": number}, role)

    async def answer(self, number: int, text: bytes) -> bytes:
        """Answer a connection. Return what it has sent first."""
        near, far = self.wire.channel(next(self._numbers))
        async with near, far:
            carrying = asyncio.create_task(self.connections.carry(far, {"connection": number}, "driver"))
            asked = await near.read()
            await near.write(text)
            near.end()
            while await near.read():
                pass
            await carrying
            return asked

    async def ask(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", urlsplit(self.relay.url).port)


@pytest.fixture
async def host() -> AsyncIterator[RelayedHost]:
    made = RelayedHost()
    async with made.relay:
        yield made


async def test_connections_wait_for_the_laptop_which_is_told_the_token_first(host: RelayedHost) -> None:
    reader, writer = await host.ask()
    writer.write(b"asked")
    writer.write_eof()
    async with host.laptop() as told:
        lines = bytearray()
        while lines.count(b"\n") < 2:
            lines += await told.read()
        assert lines.decode().split() == [urlsplit(host.relay.url).path.strip("/"), "1"]
        assert await host.answer(1, b"answered") == b"asked" and await reader.read() == b"answered"
    writer.close()


async def test_the_laptop_that_asked_last_answers_and_a_viewer_never(host: RelayedHost) -> None:
    async with host.laptop() as first:
        await first.read()
        async with host.laptop() as second:
            await second.read()
            with pytest.raises(ChannelError, match="another client"):
                while await first.read():
                    pass
            with pytest.raises(ValueError, match="only who drives"):
                await host.relay.serve(second, {}, "viewer")
            reader, writer = await host.ask()
            assert await second.read() == b"1\n"
            with pytest.raises(ValueError, match="only who drives"):
                await host.take(1, "viewer")
            carrying = asyncio.create_task(host.take(1, "driver"))
            await until(lambda: not host.connections.waiting({1}))
            async with host.laptop() as third:  # the second may be away: the agent need not wait for it
                await third.read()
                with pytest.raises(ConnectionError):
                    await reader.read()
            assert carrying.cancelled()
            writer.close()


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
async def test_another_user_of_the_host_is_refused(host: RelayedHost, source: str) -> None:
    words = [sys.executable, "-c", _CONNECT]
    port = str(urlsplit(host.relay.url).port)
    child = await asyncio.create_subprocess_exec(*words, "65534", port, source, stderr=subprocess.PIPE)
    _, errors = await child.communicate()
    assert child.returncode == 0, errors.decode()


async def test_a_crowd_is_refused_and_what_waits_too_long_is_closed(
    host: RelayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def look(*ends: tuple[str, int]) -> int | None:
        looks.append(ends)
        return owner_of_connection(*ends)

    monkeypatch.setattr(model_relay, "owner_of_connection", look)
    crowd = [await host.ask() for _ in range(MAX_CONNECTIONS + 40)]
    ended, _ = await asyncio.wait([asyncio.create_task(r.read()) for r, _ in crowd], return_when="FIRST_COMPLETED")
    assert {each.result() for each in ended} == {b""}, "more than there may be"
    assert len(looks) <= MAX_CONNECTIONS, "the table of a host with a crowd is long"
    await host.relay.__aexit__()
    with pytest.raises(OSError):
        await host.ask()
    for _, writer in crowd:
        writer.close()
    monkeypatch.setattr(model_relay, "WAIT_S", 0.01)
    async with ModelRelay(host.connections) as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(relay.url).port, family=socket.AF_INET)
        assert await reader.read() == b""
        writer.close()
