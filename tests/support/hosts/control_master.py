"""The person's own master connection of the OpenSSH client, started by hand as they would."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.support.hosts.sshd import HostUser, Sshd


@dataclass(frozen=True)
class ControlMaster:
    """A running master. `option` is the flag of `ccb ssh` that names its socket."""

    socket: Path
    process: psutil.Process

    @property
    def option(self) -> str:
        return f"ControlPath={self.socket}"


@contextmanager
def socket_directory() -> Iterator[Path]:
    """A private directory with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="ccbt-", dir="/tmp") as directory:
        yield Path(directory)


@asynccontextmanager
async def control_master(
    server: Sshd, user: HostUser, socket: Path, *, port: int | None = None
) -> AsyncIterator[ControlMaster]:
    """Log in to `server` (through the relay on `port`) and listen at `socket`. Killed on leaving, with its ssh."""
    words = ["-F", "none", "-l", user.name, "-p", str(port or server.port), "-i", str(server.identity)]
    words += ["-o", f"UserKnownHostsFile={server.trust(port or server.port)}", "-o", "IdentitiesOnly=yes"]
    ssh = await asyncio.create_subprocess_exec(
        "ssh", *words, "-M", "-S", str(socket), "-N", "-T", "127.0.0.1", stdin=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while not socket.exists():
                assert ssh.returncode is None, "the master has ended"
                await asyncio.sleep(0.01)
        yield ControlMaster(socket, psutil.Process(ssh.pid))
    finally:
        with contextlib.suppress(ProcessLookupError):
            ssh.kill()
        await ssh.wait()
        socket.unlink(missing_ok=True)
