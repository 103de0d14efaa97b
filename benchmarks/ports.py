"""A download through a forward of a session, beside the same one through `ssh -L`, at 0 and 20 ms one way.

An argument is the size of the download in MB (100 without one).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.ratio import in_turn, versus
from tests.support.hosts.sshd import HostUser, Sshd, host_user, sshd
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.network.relay import relay
from tests.support.person.terminal import terminal

RUNS = 3
LEAST = 0.7
_BLOCK = bytes(range(256)) * 256
_READ = 1 << 20


@asynccontextmanager
async def _server(size: int) -> AsyncIterator[int]:
    """A server that sends `size` bytes to whoever connects. Yields its port."""

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            for _number in range(size // len(_BLOCK)):
                writer.write(_BLOCK)
                await writer.drain()
            writer.close()

    async with await asyncio.start_server(pour, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def _download(port: int, size: int) -> Callable[[], Awaitable[float]]:
    async def run() -> float:
        began, got = time.monotonic(), 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_READ)
        while data := await reader.read(_READ):
            got += len(data)
        writer.close()
        assert got == size, f"{got} bytes of {size}"
        return time.monotonic() - began

    return run


async def _free_port() -> int:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
        port: int = server.sockets[0].getsockname()[1]
        return port


async def _listens(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _ssh(server: Sshd, user: HostUser, between: int, remote: int) -> AsyncIterator[int]:
    local = await _free_port()
    options = [f"UserKnownHostsFile={server.trust(between)}", "IdentitiesOnly=yes", "BatchMode=yes"]
    words = [word for option in options for word in ("-o", option)]
    argv = ["ssh", "-N", "-p", str(between), "-i", str(server.identity), *words, "-L", f"{local}:127.0.0.1:{remote}"]
    process = await asyncio.create_subprocess_exec(*argv, f"{user.name}@127.0.0.1")
    try:
        await _listens(local)
        yield local
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _ccb(server: Sshd, user: HostUser, between: int, remote: int, top: Path, url: str) -> AsyncIterator[int]:
    local, home = await _free_port(), top / f"laptop-{between}"
    home.mkdir()
    env = {
        "PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8",
        "ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": url,
    }  # fmt: skip
    words = [*server.client_options(between), "--forward", f"{local}:{remote}"]
    argv = [sys.executable, "-m", "ccb", "ssh", f"{user.name}@127.0.0.1:~", *words]
    async with terminal(argv, env, str(top), (120, 40)):
        await _listens(local)
        yield local


async def main() -> None:
    """Print how a forward compares with `ssh -L`."""
    size = (int(sys.argv[1]) if len(sys.argv) > 1 else 100) * 1_000_000 // len(_BLOCK) * len(_BLOCK)
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name, host_user(Path(name)) as user:
        top = Path(name)
        async with sshd(top / "sshd") as server, FakeModel() as model, _server(size) as remote:
            for delay_s in (0.0, 0.02):
                async with (
                    relay(server.port, delay_s=delay_s) as between,
                    _ssh(server, user, between.port, remote) as theirs,
                    _ccb(server, user, between.port, remote, top, model.url) as ours,
                ):
                    measures = _download(ours, size), _download(theirs, size)
                    mine, others = await in_turn(*measures, runs=RUNS)
                figure = f"a forward, {delay_s * 1000:.0f} ms one way"
                speeds = [size / 1e6 / sorted(each)[len(each) // 2] for each in (mine, others)]
                versus(figure, speeds[0], "ssh -L", speeds[1], LEAST, unit="MB/s", least=True)
