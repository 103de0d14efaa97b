"""`ccb ssh` to its init message against `ssh host true`, at 100 ms and at 0 ms round trip, over real TCP; and how soon
the process ends after its result.

A real sshd at the far end of a kernel network. All clients are whole processes, measured from their start, in turn.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.kernel_network import KernelNetwork, kernel_network, why_not
from benchmarks.ratio import PeerMissing, bound, compare, in_turn
from benchmarks.session_run import Run, run_ccb
from tests.support.hosts.sshd import HostUser, Sshd, host_user, sshd
from tests.support.model.fake_model import FakeModel

RTT_S = 0.1
EXIT_S = 0.05


class Far:
    """The clients of one server, and the exits that they took so far."""

    def __init__(self, server: Sshd, user: HostUser, model: FakeModel, home: Path) -> None:
        self.exits: list[float] = []
        self._server = server
        self._user = user
        self._model = model
        self._home = home
        self._target = f"{user.name}@{server.address}"

    async def ssh(self, *options: str) -> float:
        """Return the seconds that `ssh host true` takes."""
        known = f"UserKnownHostsFile={self._server.known_hosts}"
        argv = [
            "ssh", *options, "-i", str(self._server.identity), "-p", str(self._server.port), "-o", known,
            "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", self._target, "true",
        ]  # fmt: skip
        start = time.monotonic()
        process = await asyncio.create_subprocess_exec(*argv)
        assert await process.wait() == 0
        return time.monotonic() - start

    async def ccb(self, *options: str) -> Run:
        """Run one turn in the home directory of the host."""
        self._model.add({"text": "ok"})
        argv = ["ssh", f"{self._target}:~", *self._server.client_options(), *options]
        run = await run_ccb(argv, self._model, self._home, log=False)
        self.exits.append(run.end_s - run.result_s)
        return run

    async def warm(self, *options: str) -> float:
        """Return the seconds to init on a host that knows ccb."""
        return (await self.ccb(*options)).init_s

    async def cold(self) -> float:
        """Return the seconds to init on a host that has no worker yet."""
        shutil.rmtree(self._user.home / ".cache", ignore_errors=True)
        return (await self.ccb()).init_s

    @asynccontextmanager
    async def master(self, directory: Path) -> AsyncIterator[tuple[str, ...]]:
        """A live ControlMaster of the person in a private `directory`. Return the options that name it."""
        directory.mkdir(mode=0o700)
        options = ("-o", f"ControlPath={directory}/%C")
        await self.ssh(*options, "-o", "ControlMaster=yes", "-o", "ControlPersist=600")
        try:
            yield options
        finally:
            await self.ssh(*options, "-q", "-O", "exit")


@asynccontextmanager
async def jump_host(top: Path, network: KernelNetwork, server: Sshd, user: HostUser) -> AsyncIterator[tuple[str, ...]]:
    """A second server beside `server`, with the same keys. Return the options that go through it.

    Options of the command line do not apply to jump hosts, so `ssh` reads a configuration for every host meanwhile.
    """
    keys = [f"HostKey {server.host_key}", f"AuthorizedKeysFile {server.identity.with_name('authorized_keys')}"]
    async with sshd(top / "jump", keys, address=network.address, wrapper=network.inside) as jump:
        server.trust(jump.port)
        config, program = top / "every_host", top / "bin" / "ssh"
        config.write_text(
            f"IdentitiesOnly yes\nIdentityFile {server.identity}\nUserKnownHostsFile {server.known_hosts}\n", "utf-8"
        )
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\n[ "$1" = -F ] || set -- -F "{config}" "$@"\nexec {shutil.which("ssh")} "$@"\n', "utf-8"
        )
        program.chmod(0o755)
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{program.parent}:{path}"
        try:
            yield ("-o", f"ProxyJump={user.name}@{jump.address}:{jump.port}")
        finally:
            os.environ["PATH"] = path


def take_exits(far: Far) -> Sequence[float]:
    """Return the exits since the last call."""
    exits, far.exits = far.exits, []
    return exits


async def _measure(top: Path, network: KernelNetwork, server: Sshd, user: HostUser, model: FakeModel) -> None:
    far = Far(server, user, model, top / "laptop")
    peer = "ssh host true"
    ssh, warm, cold = await in_turn(far.ssh, far.warm, far.cold)
    compare("100 ms: warm host to init", warm, peer, ssh, 0.85)
    compare("100 ms: cold host to init", cold, peer, ssh, 1.25)
    bound("100 ms: result to the end of the process", take_exits(far), EXIT_S)
    async with far.master(top / "master") as options:
        ssh, warm = await in_turn(far.ssh, lambda: far.warm(*options))
    compare("100 ms: to init through a live master", warm, peer, ssh, 0.5)
    take_exits(far)
    async with jump_host(top, network, server, user) as options:
        ssh, warm = await in_turn(lambda: far.ssh(*options), lambda: far.warm(*options))
    compare("100 ms: to init through a jump host", warm, "the same", ssh, 1.1)
    take_exits(far)
    await network.change(0.0)
    ssh, warm = await in_turn(far.ssh, far.warm)
    compare("0 ms: warm host to init", warm, peer, ssh, 2.7)
    bound("0 ms: result to the end of the process", take_exits(far), EXIT_S)


async def main() -> None:
    if reason := why_not():
        raise PeerMissing(f"a kernel network cannot be made: {reason}")
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        top = Path(name)
        with host_user(top) as user:
            async with (
                kernel_network(RTT_S) as network,
                sshd(top / "sshd", address=network.address, wrapper=network.inside) as server,
                FakeModel() as model,
            ):
                await _measure(top, network, server, user, model)
