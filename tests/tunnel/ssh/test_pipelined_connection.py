"""asyncssh's inside, which the limits against a hostile server override."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh import constants as ssh
from asyncssh.packet import Boolean, String, UInt32
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hosts.embedded_sshd import asyncssh_server
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.person.login import every_host, only_config, pipe_to, refused, target

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.ssh.asyncssh_options import WINDOW
from ccb.tunnel.ssh.asyncssh_transport import _LATER_WINDOW, SshTransport, connect
from ccb.tunnel.ssh.pipelined_connection import VERSION, InputBuffer, open_connection
from ccb.tunnel.transports.login_prompts import NobodyToAsk

ROOT = Path(__file__).parents[3]


def test_no_other_asyncssh_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [needed] = [each for each in project["project"]["dependencies"] if each.startswith("asyncssh")]
    major, minor = VERSION.split(".")[:2]
    assert needed == f"asyncssh[bcrypt]>={major}.{minor},<{major}.{int(minor) + 1}"


async def test_another_asyncssh_is_not_used(sshd: Sshd, host_user: HostUser, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the window of a command could be opened for what nobody has read."""
    monkeypatch.setattr(asyncssh, "__version__", "2.25.0")
    error = await refused(ConfigError, target(sshd, host_user), match="does not know this version of asyncssh")
    assert "asyncssh 2.25.0" in error.evidence and "--transport ssh" in error.do


log = logging.getLogger(__name__)
SECONDS = float(os.environ.get("CCB_FLOOD_S", "3"))
LIMIT_MB = 150
SOMEBODY = HostUser("somebody", Path("/nowhere"), "/bin/sh")

CLIENT = """
import asyncio, json, os, re, socket, sys, time
from pathlib import Path
from ccb.tunnel.errors import CcbError
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.ssh.asyncssh_transport import connect
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.command_transport import LocalTransport

where, way, seconds, later = json.loads(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4] == "yes"
enough = int(sys.argv[6])

async def main():
    transport = await connect(SshTarget(**where), NobodyToAsk()) if where else LocalTransport()
    if later:
        await transport.execute("quiet")
    if way == "deaf":  # the kernel keeps some megabytes otherwise
        first = [transport.connection, *transport._hops][-1].get_extra_info("socket")
        first.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    pipe = await transport.execute(sys.argv[5])
    end, got = time.monotonic() + seconds, 0
    last = end + 60 * (enough > 0 or way in ("deaf", "until it ends"))
    try:
        while time.monotonic() < (last if got <= enough else end) and transport.alive:
            if way == "read":
                got += len(await asyncio.wait_for(pipe.read(16384), max(0.01, last - time.monotonic())))
            if way == "write":
                await asyncio.wait_for(pipe.write(bytes(1 << 20)), max(0.01, end - time.monotonic()))
                got += 1 << 20
            await asyncio.sleep(0 if enough and time.monotonic() >= end else 0.01)
    except (CcbError, TimeoutError):
        pass
    peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
    print(json.dumps({"peak": peak, "alive": transport.alive, "got": got}))
    transport.abort()
    await transport.close()

asyncio.run(main())
"""

Flood = Callable[[asyncssh.SSHServerProcess[bytes]], Iterator[None]]


class Host(asyncssh.SSHServer):
    """A host that carries connections to others."""

    def __init__(self, connections: list[asyncssh.SSHServerConnection]) -> None:
        self._connections = connections

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connections.append(conn)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True


@asynccontextmanager
async def flooding(directory: Path, flood: Flood, *, compressed: bool = False) -> AsyncIterator[Sshd]:
    """A server whose command `flood` takes steps of `flood` until the connection has ended."""
    connections: list[asyncssh.SSHServerConnection] = []

    async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
        if process.command == "quiet":
            await process.stdin.read()
            return
        for _ in flood(process):
            await process.stdout.drain()
            await asyncio.sleep(0)

    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.bind(("127.0.0.1", 0))
    options = {"sock": sock, "server_factory": lambda: Host(connections), "window": 1 << 30}
    if compressed:
        options["compression_algs"] = ["zlib@openssh.com"]
    async with asyncssh_server(directory, run, **options) as server:
        try:
            yield server
        finally:
            for connection in connections:
                connection.abort()


async def client(
    server: Sshd | None, way: str, *, later: bool = False, flood: str = "x", more: Sequence[str] = (), enough: int = 0
) -> dict[str, int]:
    """Let a client take what the command `flood` says, slowly; on this machine without `server`. Return its peak in
    MB, and whether it is connected. After that time it reads on at full speed, until it has `enough` bytes. "deaf" and
    "until it ends" wait longer for the end of the connection."""
    where = json.dumps(server and asdict(target(server, SOMEBODY, *more)))
    arguments = where, way, str(SECONDS), "yes" if later else "no", flood, str(enough)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, *arguments, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await child.communicate()
    found: dict[str, int] = json.loads(said)
    log.info("%s: %s", os.environ.get("PYTEST_CURRENT_TEST"), found)
    return found


def writes(*streams: str) -> Flood:
    """A megabyte to each stream in turn, without end."""

    def flood(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
        for name in cycle(streams):
            getattr(process, name).write(bytes(1 << 20))
            yield

    return flood


stdout, stderr, both = writes("stdout"), writes("stderr"), writes("stdout", "stderr")


def small(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    """Each packet has two bytes, for stdout and stderr in turn."""
    while True:
        for _ in range(500):
            process.channel.write(b"ab")
            process.channel.write(b"cd", ssh.EXTENDED_DATA_STDERR)
        yield


@pytest.mark.parametrize(
    ("flood", "way", "later"),
    [
        (stdout, "read", True),
        *(
            pytest.param(flood, way, later, marks=pytest.mark.thorough)
            for flood in (stdout, both, stderr, small)
            for way in ("read", "nothing")
            for later in (False, True)
            if (flood, way, later) != (stdout, "read", True)
        ),
    ],
)
async def test_what_nobody_reads_stays_on_the_host(tmp_path: Path, flood: Flood, way: str, later: bool) -> None:
    """`later`: the flood is not the first command, and has a larger window."""
    enough = 2 * (_LATER_WINDOW if later else WINDOW) if way != "nothing" and flood in (stdout, both) else 0
    async with flooding(tmp_path, flood) as server:
        found = await client(server, way, later=later, enough=enough)
    assert found["alive"]
    assert found["peak"] < LIMIT_MB
    if enough:
        assert found["got"] > enough, "what was read has opened the window"


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


def packets(*packet: bytes | int, reads: bool = False, kex: bool = False) -> Flood:
    """The same packet without end, from a server that `reads` what it is sent; `kex`: in a key exchange that never
    ends, after which asyncssh answers."""

    def flood(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
        connection: Any = process.channel.get_connection() if reads else deaf(process)
        if kex:
            connection._send_kexinit()
            connection._kex_complete = True
        while True:
            for _ in range(500):
                connection.send_packet(*packet)
            yield

    return flood


CHANNEL, UNKNOWN = UInt32(0), String("unknown")
ASKING = {
    "requests": packets(ssh.MSG_CHANNEL_REQUEST, CHANNEL, UNKNOWN, Boolean(True)),
    "global requests": packets(ssh.MSG_GLOBAL_REQUEST, UNKNOWN, Boolean(True)),
    "opens": packets(ssh.MSG_CHANNEL_OPEN, UNKNOWN, UInt32(1), UInt32(1), UInt32(1)),
    "unknown packets": packets(200),
    "unfinished key exchange": packets(ssh.MSG_CHANNEL_REQUEST, CHANNEL, UNKNOWN, Boolean(True), kex=True),
}


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("flood", ASKING.values(), ids=ASKING)
async def test_a_server_that_does_not_read_the_answers_it_asks_for_is_left(tmp_path: Path, flood: Flood) -> None:
    async with flooding(tmp_path, flood) as server:
        found = await client(server, "deaf")
    assert not found["alive"]
    assert found["peak"] < LIMIT_MB


async def test_packets_that_answer_nothing_do_not_count_as_answers(tmp_path: Path) -> None:
    async with flooding(tmp_path, silence) as server:
        transport = await connect(target(server, SOMEBODY), NobodyToAsk())
        assert isinstance(transport, SshTransport)
        connection = transport.connection
        connection.pause_writing()
        for _ in range(5_000):
            connection.send_packet(ssh.MSG_IGNORE, String(""))
        connection.send_packet(ssh.MSG_REQUEST_FAILURE)
        with pytest.raises(asyncssh.ProtocolError, match="does not read the answers"):
            for _ in range(5_000):
                connection.send_packet(ssh.MSG_REQUEST_FAILURE)
        transport.abort()
        await transport.close()


async def test_what_a_jump_host_carries_goes_on_when_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = only_config(tmp_path, monkeypatch)
    async with flooding(tmp_path, silence) as server, flooding(tmp_path, silence) as jump:
        config.write_text(every_host(jump.identity, jump.known_hosts), encoding="ascii")
        through = f"ProxyJump=somebody@127.0.0.1:{jump.port}"
        transport = await connect(target(server, SOMEBODY, through), NobodyToAsk())
        assert isinstance(transport, SshTransport)
        first, carrier = transport.connection, transport._hops[0]
        options = await asyncssh.SSHClientConnectionOptions.construct(
            username="somebody", client_keys=[str(server.identity)], known_hosts=None, config=None
        )
        second = await open_connection(asyncssh.SSHClient, "127.0.0.1", server.port, options, carrier, None)
        went_on: list[asyncssh.SSHClientConnection] = []
        monkeypatch.setattr(first, "_go_on", lambda: went_on.append(first))
        monkeypatch.setattr(second, "_go_on", lambda: went_on.append(second))
        carrier.pause_writing()
        carrier.resume_writing()
        assert set(went_on) == {first, second}
        second.abort()
        await second.wait_closed()
        carrier.resume_writing()
        assert went_on[2:] == [first], "and one that has ended is forgotten"
        transport.abort()
        await transport.close()


@pytest.mark.parametrize("carrier", ["jump host", "ProxyCommand"])
@pytest.mark.parametrize("flood", [small, pytest.param(stdout, marks=pytest.mark.thorough)])
@pytest.mark.quick_rows(1)
async def test_what_nobody_reads_stays_on_the_host_behind_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flood: Flood, carrier: str
) -> None:
    config = only_config(tmp_path, monkeypatch)
    async with flooding(tmp_path, flood) as server, flooding(tmp_path, silence) as jump:
        config.write_text(every_host(jump.identity, jump.known_hosts), encoding="ascii")
        through = f"ProxyJump=somebody@127.0.0.1:{jump.port}"
        way = through if carrier == "jump host" else pipe_to(server.port, tmp_path)
        found = await client(server, "read", more=[way])
    assert found["alive"]
    assert found["peak"] < LIMIT_MB


def rekeys(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    """A key exchange after each packet."""
    connection: Any = process.channel.get_connection()
    connection._rekey_bytes = 1
    yield from stdout(process)


def unanswered(*packet: bytes | int) -> Flood:
    return packets(*packet, reads=True)


LARGE, NO = String(bytes(30_000)), Boolean(False)
SILENT = {
    "ignore": unanswered(ssh.MSG_IGNORE, LARGE),
    "debug": unanswered(ssh.MSG_DEBUG, Boolean(True), LARGE, String("")),
    "windows": unanswered(ssh.MSG_CHANNEL_WINDOW_ADJUST, CHANNEL, UInt32(0xFFFFFFFF)),
    "ends": unanswered(ssh.MSG_CHANNEL_EOF, CHANNEL),
    "requests": unanswered(ssh.MSG_CHANNEL_REQUEST, CHANNEL, UNKNOWN, NO, LARGE),
    "signals": unanswered(
        ssh.MSG_CHANNEL_REQUEST, CHANNEL, String("exit-signal"), NO, String("KILL"), NO, LARGE, String("")
    ),
    "global requests": unanswered(ssh.MSG_GLOBAL_REQUEST, UNKNOWN, NO, LARGE),
    "host keys": unanswered(ssh.MSG_GLOBAL_REQUEST, String("hostkeys-00@openssh.com"), NO, LARGE),
    "rekeys": rekeys,
}


@pytest.mark.thorough
@pytest.mark.parametrize("flood", SILENT.values(), ids=SILENT)
async def test_packets_without_an_answer_leave_nothing(tmp_path: Path, flood: Flood) -> None:
    async with flooding(tmp_path, flood) as server:
        found = await client(server, "nothing")
    assert found["peak"] < LIMIT_MB


def bomb(process: asyncssh.SSHServerProcess[bytes]) -> Iterator[None]:
    """100 MB of zeros, which are 100 KB on their way."""
    connection: Any = process.channel.get_connection()
    connection.send_packet(ssh.MSG_IGNORE, String(bytes(100 << 20)))
    while True:
        yield


async def test_a_packet_that_unpacks_to_much_ends_the_connection(tmp_path: Path) -> None:
    async with flooding(tmp_path, bomb, compressed=True) as server:
        found = await client(server, "until it ends", more=["Compression=yes"])
    assert not found["alive"]
    assert found["peak"] < LIMIT_MB


_PLACES = st.integers(-24, 24)  # a server that names a length too small makes asyncssh count from the end
_STEPS = st.lists(st.tuples(st.sampled_from("adc"), st.binary(max_size=20), _PLACES, _PLACES))


@given(_STEPS)
def test_the_input_buffer_does_what_bytes_do_in_the_hands_of_asyncssh(steps: list[tuple[str, bytes, int, int]]) -> None:
    ours, theirs = InputBuffer(), b""
    for what, data, start, stop in steps:
        if what == "a":
            ours += data
            theirs += data
        elif what == "d":
            rest = ours[start:]
            assert isinstance(rest, InputBuffer)
            ours, theirs = rest, theirs[start:]
        assert ours[:stop] == theirs[:stop]
        assert ours[start:stop] == theirs[start:stop]
        assert ours.find(data[:1], 0, abs(stop)) == theirs.find(data[:1], 0, abs(stop))
        assert len(ours) == len(theirs)
        assert bool(ours) == bool(theirs)
