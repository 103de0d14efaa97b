"""`ccb ssh` to hello against `ssh host true`, at 100 ms round trip: fresh host at most 1.25 times, warm host at most
1.1 times; through one jump host the same.

A real sshd behind a relay with 50 ms each way; both clients run in turn, whole processes from their start on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.session_run import run_ccb
from tests.support.fake_model import FakeModel
from tests.support.relay import relay
from tests.support.sshd import HostUser, Sshd, host_user, sshd

RUNS = 7
DELAY_S = 0.05


async def _ssh_true(server: Sshd, user: HostUser, port: int, jump: int | None = None) -> float:
    """Return the seconds that `ssh host true` takes on `port`, through the jump host on port `jump`."""
    config = server.log.with_name("ssh_config")
    through = [] if jump is None else [f"ProxyJump {user.name}@127.0.0.1:{jump}"]
    lines = [
        "BatchMode yes", "IdentitiesOnly yes", f"IdentityFile {server.identity}",
        f"UserKnownHostsFile {server.known_hosts}", "Host far", "HostName 127.0.0.1", f"Port {port}", *through,
    ]  # fmt: skip
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    start = time.monotonic()
    process = await asyncio.create_subprocess_exec("ssh", "-F", str(config), f"{user.name}@far", "true")
    assert await process.wait() == 0
    return time.monotonic() - start


async def _ccb_hello(
    server: Sshd, user: HostUser, port: int, model: FakeModel, home: Path, options: Sequence[str] = ()
) -> float:
    model.add({"text": "ok"})
    return (
        await run_ccb(["ssh", f"{user.name}@127.0.0.1:~", *server.client_options(port), *options], model, home)
    ).hello_s


async def _direct(server: Sshd, user: HostUser, model: FakeModel, home: Path) -> None:
    ssh, fresh, warm = [], [], []
    async with relay(server.port, delay_s=DELAY_S) as link:
        server.trust(link.port)
        for _ in range(RUNS):
            ssh.append(await _ssh_true(server, user, link.port))
            shutil.rmtree(user.home / ".cache", ignore_errors=True)
            fresh.append(await _ccb_hello(server, user, link.port, model, home))
            warm.append(await _ccb_hello(server, user, link.port, model, home))
    _report("", ssh, (("fresh host to hello", fresh, 1.25), ("warm host to hello", warm, 1.1)))


async def _through_a_jump_host(top: Path, server: Sshd, user: HostUser, model: FakeModel, home: Path) -> None:
    async with sshd(top / "jump") as jump, relay(jump.port, delay_s=DELAY_S) as link:
        jump.identity.with_name("authorized_keys").write_text(
            server.identity.with_suffix(".pub").read_text(encoding="ascii"), encoding="ascii"
        )
        known = server.known_hosts.read_text(encoding="ascii") + jump.trust(link.port).read_text(encoding="ascii")
        server.known_hosts.write_text(known, encoding="ascii")
        options = ["-o", f"ProxyJump={user.name}@127.0.0.1:{link.port}"]
        _configure_jump_host(top, server)
        ssh, warm = [], []
        for _ in range(RUNS):
            ssh.append(await _ssh_true(server, user, server.port, link.port))
            warm.append(await _ccb_hello(server, user, server.port, model, home, options))
    _report(" through a jump host", ssh, (("warm host to hello", warm, 1.1),))


def _configure_jump_host(top: Path, server: Sshd) -> None:
    """Make ssh read a configuration for every host: options of the command line do not apply to jump hosts."""
    config, program = top / "every_host", top / "bin" / "ssh"
    config.write_text(
        f"IdentitiesOnly yes\nIdentityFile {server.identity}\nUserKnownHostsFile {server.known_hosts}\n",
        encoding="utf-8",
    )
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -F ] || set -- -F "{config}" "$@"\nexec {shutil.which("ssh")} "$@"\n', "utf-8"
    )
    program.chmod(0o755)
    os.environ["PATH"] = f"{program.parent}:{os.environ['PATH']}"


def _report(way: str, ssh: Sequence[float], rows: Sequence[tuple[str, Sequence[float], float]]) -> None:
    base = statistics.median(ssh)
    print(f"ssh host true{way:<20} {base * 1000:6.0f} ms")
    for what, values, limit in rows:
        median = statistics.median(values)
        print(f"ccb ssh, {what:<24} {median * 1000:6.0f} ms   {median / base:.2f} times (limit {limit})")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        top = Path(name)
        with host_user(top) as user:
            async with sshd(top / "sshd") as server, FakeModel() as model:
                await _direct(server, user, model, top / "laptop")
                await _through_a_jump_host(top, server, user, model, top / "laptop")


if __name__ == "__main__":
    asyncio.run(main())
