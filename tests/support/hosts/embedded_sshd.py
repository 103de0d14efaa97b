"""An SSH server inside this process (asyncssh's), for `make demo`: no root, temporary keys, 127.0.0.1 only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh

_PIECE = 64 * 1024


@dataclass(frozen=True)
class EmbeddedSshd:
    """Where it listens and what a client needs: `identity` is the user's key, `known_hosts` names the server's."""

    port: int
    identity: Path
    known_hosts: Path

    def client_options(self) -> list[str]:
        """Flags of `ccb ssh` that reach this server and nothing of the user's own configuration."""
        return [
            "-P", str(self.port), "-i", str(self.identity),
            "-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "IdentitiesOnly=yes",
        ]  # fmt: skip


async def _feed(source: asyncssh.SSHReader[bytes], stdin: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):  # either of them has ended
        while data := await source.read(_PIECE):
            stdin.write(data)
            await stdin.drain()
    stdin.close()


async def _pass_on(output: asyncio.StreamReader, channel: asyncssh.SSHWriter[bytes]) -> None:
    """Send what a child prints, or raise: asyncssh's own redirection ends the connection if the channel is closed."""
    while data := await output.read(_PIECE):
        channel.write(data)
        await channel.drain()


@asynccontextmanager
async def embedded_sshd(directory: Path, env: Mapping[str, str], cwd: Path) -> AsyncIterator[EmbeddedSshd]:
    """Serve on a free port. Commands run under `/bin/sh -c` with exactly `env`, in `cwd`; `directory` gets the keys."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    user_key = asyncssh.generate_private_key("ssh-ed25519")
    identity = directory / "id_demo"
    identity.touch(mode=0o600)
    user_key.write_private_key(str(identity))
    authorized = asyncssh.import_authorized_keys(user_key.export_public_key().decode())

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

    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[host_key],
        authorized_client_keys=authorized,
        process_factory=run,
        encoding=None,
    )
    try:
        port = server.get_port()
        known_hosts = directory / "known_hosts"
        public = host_key.export_public_key().decode().strip()
        known_hosts.write_text(f"[127.0.0.1]:{port} {public}\n", encoding="ascii")
        yield EmbeddedSshd(port, identity, known_hosts)
    finally:
        server.close()
        await server.wait_closed()
