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
from tests.tunnel.wire.test_channels import Wire

from ccb.remote.daemon import model_relay, ports
from ccb.remote.daemon.model_relay import ModelRelay
from ccb.remote.daemon.ports import MAX_WAITING
from ccb.remote.system.listeners import NOBODY, owner_of_connection
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
        self.relay = ModelRelay()
        self._numbers = iter(range(1, 100))

    @property
    def token(self) -> bytes:
        return urlsplit(self.relay.url).path.strip("/").encode()

    @asynccontextmanager
    async def channel(self, laptop: Wire) -> AsyncIterator[Channel]:
        """Yield a laptop's end of a channel for one connection."""
        near, far = laptop.channel(next(self._numbers))
        async with near, far:
            serving = asyncio.create_task(self.relay.serve(far, {}, "driver"))
            yield near
            near.end()
            await asyncio.gather(serving, return_exceptions=True)

    async def ask(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", urlsplit(self.relay.url).port)


def laptop() -> Wire:
    wire = Wire()
    wire.connect()
    return wire


async def read_until(channel: Channel, text: bytes) -> bytes:
    got = bytearray()
    while not got.endswith(text):
        got += await channel.read()
    return bytes(got)


@pytest.fixture
async def host() -> AsyncIterator[RelayedHost]:
    made = RelayedHost()
    await made.relay.open()
    yield made
    made.relay.close()


async def test_connections_wait_for_the_laptop_which_is_told_the_token_first(host: RelayedHost) -> None:
    reader, writer = await host.ask()
    writer.write(b"asked")
    writer.write_eof()
    async with host.channel(laptop()) as told:
        assert await read_until(told, b"asked") == host.token + b"\n\nasked"
        await told.write(b"answered")
    assert await reader.read() == b"answered"
    writer.close()


async def test_the_laptop_that_asked_last_answers_and_a_viewer_never(host: RelayedHost) -> None:
    one, other = laptop(), laptop()
    async with host.channel(one) as first:
        await first.read()
        async with host.channel(other) as second:
            await read_until(second, b"\n")
            with pytest.raises(ChannelError, match="another client"):
                while await first.read():
                    pass
            with pytest.raises(ValueError, match="only who drives"):
                await host.relay.serve(second, {}, "viewer")
            reader, writer = await host.ask()
            writer.write(b"asked")
            assert await read_until(second, b"asked") == b"\nasked"
            async with host.channel(other) as next_one:
                await next_one.read()
            async with host.channel(one) as third:  # the other laptop may be away: the agent need not wait for it
                await third.read()
                with pytest.raises(ConnectionError):
                    await reader.read()
            writer.close()


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
async def test_another_user_of_the_host_is_refused(host: RelayedHost, source: str) -> None:
    words = [sys.executable, "-c", _CONNECT]
    port = str(urlsplit(host.relay.url).port)
    child = await asyncio.create_subprocess_exec(*words, "65534", port, source, stderr=subprocess.PIPE)
    _, errors = await child.communicate()
    assert child.returncode == 0, errors.decode()


def test_a_connection_whose_end_is_closed_is_not_one_of_root() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        ends = client.getsockname(), client.getpeername()
        assert owner_of_connection(*ends) in (None, os.geteuid())
        client.close()
        assert owner_of_connection(*ends) in (None, NOBODY)


async def test_a_crowd_is_refused_and_what_waits_too_long_is_closed(
    host: RelayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def look(*ends: tuple[str, int]) -> int | None:
        looks.append(ends)
        return owner_of_connection(*ends)

    monkeypatch.setattr(model_relay, "owner_of_connection", look)
    crowd = [await host.ask() for _ in range(MAX_WAITING + 40)]
    reading = [asyncio.create_task(reader.read()) for reader, _ in crowd]
    ended, waiting = await asyncio.wait(reading, return_when="FIRST_COMPLETED")
    assert {each.result() for each in ended} == {b""}, "more than there may be"
    assert len(looks) <= MAX_WAITING, "the table of a host with a crowd is long"
    host.relay.close()
    with pytest.raises(OSError):
        await host.ask()
    await asyncio.wait(waiting)  # the relay may still be looking up the users of some
    for _, writer in crowd:
        writer.close()
    monkeypatch.setattr(ports, "WAIT_S", 0.0)
    await host.relay.open()
    reader, writer = await host.ask()
    async with host.channel(laptop()):
        assert await reader.read() == b""
    writer.close()
