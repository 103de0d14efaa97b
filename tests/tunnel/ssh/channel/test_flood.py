"""A hostile server that sends without end: how much of it the laptop keeps, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh.constants import EXTENDED_DATA_STDERR, MSG_CHANNEL_OPEN, MSG_CHANNEL_REQUEST, MSG_GLOBAL_REQUEST
from asyncssh.packet import Boolean, String, UInt32
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.person.login import target

SECONDS = float(os.environ.get("CCB_FLOOD_S", "3"))
LIMIT_MB = 150
SOMEBODY = HostUser("somebody", Path("/nowhere"), "/bin/sh")

CLIENT = """
import asyncio, json, re, socket, sys, time
from pathlib import Path
from ccb.tunnel.errors import CcbError
from ccb.tunnel.login.prompter import NobodyToAsk
from ccb.tunnel.ssh.transport import connect
from ccb.tunnel.ssh_config.target import SshTarget
from ccb.tunnel.transports.local import LocalTransport

where, way, seconds, later = json.loads(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4] == "yes"

async def main():
    transport = await connect(SshTarget(**where), NobodyToAsk()) if where else LocalTransport()
    if later:
        await transport.execute("quiet")
    if way == "deaf":  # the kernel keeps some megabytes otherwise
        transport.connection.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    pipe = await transport.execute(sys.argv[5])
    end, got = time.monotonic() + seconds, 0
    def take(data):
        nonlocal got
        got += len(data)
        pipe.hold()
    if way == "hand over":
        pipe.hand_over(take)
    try:
        while time.monotonic() < end and transport.alive:
            if way == "read":
                got += len(await asyncio.wait_for(pipe.read(16384), max(0.01, end - time.monotonic())))
            if way == "write":
                await asyncio.wait_for(pipe.write(bytes(1 << 20)), max(0.01, end - time.monotonic()))
                got += 1 << 20
            await asyncio.sleep(0.01)
            if way == "hand over" and pipe._process._paused_write_streams:
                pipe.release()
    except (CcbError, TimeoutError):
        pass
    peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
    print(json.dumps({"peak": peak, "alive": transport.alive, "got": got}))
    transport.abort()
    await transport.close()

asyncio.run(main())
"""

Flood = Callable[[asyncssh.SSHServerProcess[bytes]], Iterator[None]]


@asynccontextmanager
async def flooding(directory: Path, flood: Flood) -> AsyncIterator[Sshd]:
    """A server whose command `flood` takes steps of `flood` until the connection has ended."""
    host_key, identity = make_key(directory / "host_ed25519"), make_key(directory / "id_ed25519")

    connections = []

    async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
        connections.append(process.channel.get_connection())
        if process.command == "quiet":
            await process.stdin.read()
            return
        for _ in flood(process):
            await process.stdout.drain()
            await asyncio.sleep(0)

    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.bind(("127.0.0.1", 0))
    listener = await asyncssh.listen(
        sock=sock,
        server_host_keys=[str(host_key)],
        authorized_client_keys=f"{identity}.pub",
        process_factory=run,
        encoding=None,
        window=1 << 30,
    )
    server = Sshd(listener.get_port(), identity, directory / "known_hosts", host_key, directory / "log")
    server.trust(server.port)
    try:
        yield server
    finally:
        for connection in connections:
            connection.abort()
        listener.close()
        await listener.wait_closed()


async def client(server: Sshd | None, way: str, *, later: bool = False, flood: str = "flood") -> dict[str, int]:
    """Let a client take what the command `flood` says, slowly; on this machine without `server`. Return its peak in
    MB, and whether it is connected."""
    where = json.dumps(server and vars_of(target(server, SOMEBODY)))
    arguments = where, way, str(SECONDS), "yes" if later else "no", flood
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, *arguments, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await child.communicate()
    found: dict[str, int] = json.loads(said)
    return found


def vars_of(where: Any) -> dict[str, object]:
    names = ("host", "user", "port", "identities", "options")
    return {name: getattr(where, name) for name in names}


def stdout(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    while True:
        process.stdout.write(bytes(1 << 20))
        yield


def both(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    for stream in cycle((process.stdout, process.stderr)):
        stream.write(bytes(1 << 20))
        yield


def stderr(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    while True:
        process.stderr.write(bytes(1 << 20))
        yield


def small(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    """Each packet has two bytes, for stdout and stderr in turn."""
    while True:
        for _ in range(500):
            process.channel.write(b"ab")
            process.channel.write(b"cd", EXTENDED_DATA_STDERR)
        yield


@pytest.mark.parametrize(
    ("flood", "way", "later"),
    [
        (stdout, "hand over", True),
        *(
            pytest.param(flood, way, later, marks=pytest.mark.thorough)
            for flood in (stdout, both, stderr, small)
            for way in ("read", "hand over", "nothing")
            for later in (False, True)
            if (flood, way, later) != (stdout, "hand over", True)
        ),
    ],
)
async def test_what_nobody_reads_stays_on_the_host(tmp_path: Path, flood: Flood, way: str, later: bool) -> None:
    """`later`: the flood is not the first command, and has a larger window."""
    async with flooding(tmp_path, flood) as server:
        found = await client(server, way, later=later)
    assert found["alive"]
    assert found["peak"] < LIMIT_MB


def deaf(process: asyncssh.SSHServerProcess[bytes]) -> Any:
    """Return the connection of `process`, which reads nothing any more."""
    connection: Any = process.channel.get_connection()
    vars(connection)["_transport"].pause_reading()
    return connection


def silence(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    deaf(process)
    while True:
        yield


@pytest.mark.thorough
@pytest.mark.parametrize("stream", ["1", "2"])
async def test_what_nobody_reads_stays_in_the_pipe_of_another_transport(stream: str) -> None:
    found = await client(None, "read", flood=f"yes {'x' * 80} >&{stream}")
    assert found["alive"]
    assert found["peak"] < LIMIT_MB


async def test_what_a_server_does_not_read_is_not_sent(tmp_path: Path) -> None:
    """The kernel keeps some of it. The server has opened a window of 1 GB."""
    async with flooding(tmp_path, silence) as server:
        found = await client(server, "write")
    assert found["alive"]
    assert 0 < found["got"] < 8 << 20


def requests(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    connection = deaf(process)
    number = UInt32(0)
    while True:
        for _ in range(500):
            connection.send_packet(MSG_CHANNEL_REQUEST, number, String("unknown"), Boolean(True))
        yield


def global_requests(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    connection = deaf(process)
    while True:
        for _ in range(500):
            connection.send_packet(MSG_GLOBAL_REQUEST, String("unknown"), Boolean(True))
        yield


def opens(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    connection = deaf(process)
    while True:
        for _ in range(500):
            connection.send_packet(MSG_CHANNEL_OPEN, String("unknown"), UInt32(1), UInt32(1), UInt32(1))
        yield


def unknown_packets(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    connection = deaf(process)
    while True:
        for _ in range(500):
            connection.send_packet(200)
        yield


def unfinished_key_exchange(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    """Requests that asyncssh answers after the key exchange, which never ends."""
    connection = deaf(process)
    number = UInt32(0)
    connection._send_kexinit()
    connection._kex_complete = True
    while True:
        for _ in range(500):
            connection.send_packet(MSG_CHANNEL_REQUEST, number, String("unknown"), Boolean(True))
        yield


@pytest.mark.parametrize(
    "flood",
    [requests, global_requests, opens, unknown_packets, unfinished_key_exchange],
    ids=lambda flood: str(flood.__name__),
)
async def test_a_server_that_does_not_read_the_answers_it_asks_for_is_left(tmp_path: Path, flood: Flood) -> None:
    async with flooding(tmp_path, flood) as server:
        found = await client(server, "deaf")
    assert not found["alive"]
    assert found["peak"] < LIMIT_MB
