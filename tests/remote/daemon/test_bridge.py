"""The bridge: bytes both ways, nothing kept back, and no life of its own once an end has left."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

_SOURCE = Path(__file__).resolve().parents[3] / "src"
_RUN = (
    "import socket,sys; from ccb.remote import main as bridge; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
    "bridge.run(0,1,s)"
)
DEADLINE_S = 60.0


class Relay:
    """A bridge process between pipes of the test and a socket of the test, which plays the daemon."""

    def __init__(self, process: asyncio.subprocess.Process, daemon: socket.socket) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process, self.stdin, self.stdout = process, process.stdin, process.stdout
        self.daemon = daemon

    async def say(self, data: bytes) -> None:
        await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(self.daemon, data), DEADLINE_S)

    async def hear(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            piece = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.daemon, 65536), DEADLINE_S)
            if not piece:
                break
            got += piece
        return got

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), DEADLINE_S)


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[Relay]:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.setblocking(False)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _RUN, path,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_SOURCE)},
        )  # fmt: skip
        daemon, _ = await asyncio.wait_for(asyncio.get_running_loop().sock_accept(listener), DEADLINE_S)
        daemon.setblocking(False)
        with daemon:
            relay = Relay(process, daemon)
            yield relay
        if process.returncode is None:
            process.kill()
        relay.stdin.close()
        await relay.stdout.read(-1)
        await process.wait()


async def test_bytes_pass_both_ways_unchanged(relay: Relay) -> None:
    there, back = os.urandom(3_000_000), os.urandom(3_000_000)

    async def give() -> None:
        relay.stdin.write(there)
        await relay.stdin.drain()

    _, _, heard, read = await asyncio.wait_for(
        asyncio.gather(give(), relay.say(back), relay.hear(len(there)), relay.stdout.readexactly(len(back))), DEADLINE_S
    )
    assert heard == there
    assert read == back


async def test_the_last_input_of_a_laptop_that_leaves_reaches_the_daemon(relay: Relay) -> None:
    last = os.urandom(900_000)  # more than the socket takes at once
    relay.stdin.write(last)
    relay.stdin.close()
    assert await relay.hear(len(last) + 1) == last
    assert await relay.ended() == 0


async def test_the_last_words_of_the_daemon_reach_a_laptop_that_still_talks(relay: Relay) -> None:
    words = os.urandom(150_000)
    relay.stdin.write(b"i talk, and the daemon no longer reads" * 100)
    await relay.stdin.drain()
    await relay.say(words)
    relay.daemon.close()
    relay.stdin.write(b"more" * 10_000)
    assert await asyncio.wait_for(relay.stdout.read(-1), DEADLINE_S) == words
    assert await relay.ended() == 0


@pytest.mark.programs
async def test_a_daemon_that_takes_nothing_does_not_keep_it_after_the_channel_has_ended(relay: Relay) -> None:
    relay.stdin.write(os.urandom(900_000))
    relay.stdin.close()
    assert await relay.ended() == 0


async def test_a_reader_that_takes_nothing_stops_the_daemon_and_grows_nothing(relay: Relay) -> None:
    relay.daemon.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    taken = 0
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < 0.5:
        try:
            taken += relay.daemon.send(b"x" * 65536)
            quiet_since = time.monotonic()
        except BlockingIOError:
            await asyncio.sleep(0.01)
        assert taken < 8_000_000, "the bridge takes more than it may hold"
    assert taken > 0
