"""The first TCP connection, to real listeners."""

from __future__ import annotations

import asyncio
import dataclasses
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ccb.tunnel.errors import Unreachable
from ccb.tunnel.ssh.carrier import open_socket
from ccb.tunnel.ssh_config.config_files import resolve
from ccb.tunnel.ssh_config.ssh_target import SshTarget


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
async def test_a_host_that_is_not_up_yet_is_tried_as_often_as_was_set() -> None:
    port = free_port()
    config = await resolve(SshTarget("127.0.0.1", port=port, options=("ConnectionAttempts=20",)))
    connecting = asyncio.create_task(open_socket(config))
    done, _ = await asyncio.wait({connecting}, timeout=0.3)
    assert not done, "refused once, it goes on"
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)
    async with server:
        (await asyncio.wait_for(connecting, 60)).close()
    with pytest.raises(Unreachable, match="cannot reach"):
        await open_socket(dataclasses.replace(config, route=dataclasses.replace(config.route, attempts=2)))


@pytest.mark.parametrize("listen", ["127.0.0.1", "::1"])
async def test_the_address_of_a_host_is_used_at_once(listen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", None)  # it would take a thread, beside imports
    server = await asyncio.start_server(
        lambda reader, writer: writer.close(),
        sock=socket.create_server((listen, 0), family=socket.AF_INET6 if ":" in listen else socket.AF_INET),
    )
    async with server:
        config = await resolve(SshTarget(listen, port=server.sockets[0].getsockname()[1]))
        (await open_socket(config)).close()


async def source_of_a_connection(listen: str, *options: str) -> str:
    """Where a connection to `listen` comes from."""
    source: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source.set_result(writer.get_extra_info("peername")[0])
        writer.close()

    server = await asyncio.start_server(greeted, listen, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        (await open_socket(await resolve(SshTarget(listen, port=port, options=options)))).close()
        return await asyncio.wait_for(source, 60)


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno(), before[1]))
    try:
        held = []
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                held.append(socket.socket())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for each in held:
            each.close()


async def test_a_socket_that_this_machine_does_not_give_is_an_address_that_does_not_serve() -> None:
    """As the first of two addresses where the kernel has no IPv6."""
    config = await resolve(SshTarget("127.0.0.1", port=free_port()))
    with no_more_descriptors(), pytest.raises(Unreachable) as caught:
        await open_socket(config)
    assert "Too many open files" in caught.value.evidence
