"""SSH servers inside this process (asyncssh's): no root, temporary keys, 127.0.0.1 only. One is for `make demo`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
from tests.support.hosts.sshd import Sshd, make_key

_PIECE = 64 * 1024


@asynccontextmanager
async def asyncssh_server(
    directory: Path, run: Callable[[asyncssh.SSHServerProcess[bytes]], Awaitable[None]], **options: Any
) -> AsyncIterator[Sshd]:
    """A server whose commands are calls of `run`. Servers in one directory have the same keys."""
    host_key, identity = directory / "host_ed25519", directory / "id_ed25519"
    for key in (host_key, identity):
        if not key.exists():
            make_key(key)
    keys = {"server_host_keys": [str(host_key)], "authorized_client_keys": f"{identity}.pub"}
    place = {} if "sock" in options else {"host": "127.0.0.1", "port": 0}
    listener = await asyncssh.listen(process_factory=run, encoding=None, **{**keys, **place, **options})
    server = Sshd(listener.get_port(), identity, directory / "known_hosts", host_key, directory / "log")
    server.trust(server.port)
    try:
        yield server
    finally:
        listener.close()
        await listener.wait_closed()


async def _feed(source: asyncssh.SSHReader[bytes], stdin: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):  # either of them has ended
        while data := await source.read(_PIECE):
            stdin.write(data)
            await stdin.drain()
    stdin.close()
    with contextlib.suppress(OSError):
        await stdin.wait_closed()


async def _pass_on(output: asyncio.StreamReader, channel: asyncssh.SSHWriter[bytes]) -> None:
    """Send what a child prints, or raise: asyncssh's own redirection ends the connection if the channel is closed."""
    while data := await output.read(_PIECE):
        channel.write(data)
        await channel.drain()


@asynccontextmanager
async def embedded_sshd(directory: Path, env: Mapping[str, str], cwd: Path) -> AsyncIterator[Sshd]:
    """Serve on a free port. Commands run under `/bin/sh -c` with exactly `env`, in `cwd`; `directory` gets the keys."""

    async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
        child = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", process.command or "exit 1",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=dict(env), cwd=cwd, start_new_session=True,
        )  # fmt: skip
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        outputs = ((child.stdout, process.stdout), (child.stderr, process.stderr))
        passing = [asyncio.create_task(_pass_on(*each)) for each in outputs]
        feeding = asyncio.create_task(_feed(process.stdin, child.stdin))
        try:
            done, _ = await asyncio.wait(passing, return_when=asyncio.FIRST_EXCEPTION)
            if not any(each.exception() for each in done):
                status = await child.wait()
                with contextlib.suppress(OSError):  # the channel was closed at the same moment
                    process.exit(max(status, 0))
            await process.wait_closed()
        finally:
            for each in (feeding, *passing):
                each.cancel()
            await asyncio.gather(feeding, *passing, return_exceptions=True)
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):  # it has ended, and that was not noticed yet
                    os.killpg(child.pid, signal.SIGKILL)
                for output, _ in outputs:
                    while await output.read(_PIECE):  # asyncio waits for the ends of the pipes
                        pass
                await child.wait()

    async with asyncssh_server(directory, run) as server:
        yield server
