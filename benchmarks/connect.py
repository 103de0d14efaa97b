"""`ccb ssh` to hello against `ssh host true`, at 100 ms round trip: fresh host at most 1.25 times, warm host at most 1.1 times.

A real sshd behind a relay with 50 ms each way; both clients run in turn, whole processes from their start on.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.session_run import run_ccb
from tests.support.fake_model import FakeModel
from tests.support.relay import relay
from tests.support.sshd import HostUser, Sshd, host_user, sshd

RUNS = 7
DELAY_S = 0.05


async def _ssh_true(server: Sshd, user: HostUser, port: int) -> float:
    start = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        "ssh", "-F", "none", "-p", str(port), "-i", str(server.identity), "-o", f"UserKnownHostsFile={server.trust(port)}",
        "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", f"{user.name}@127.0.0.1", "true",
    )  # fmt: skip
    assert await process.wait() == 0
    return time.monotonic() - start


async def _ccb_hello(server: Sshd, user: HostUser, port: int, model: FakeModel, home: Path) -> float:
    model.add({"text": "ok"})
    return (await run_ccb(["ssh", f"{user.name}@127.0.0.1:~", *server.client_options(port)], model, home)).hello_s


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        top = Path(name)
        with host_user(top) as user:
            async with sshd(top / "sshd") as server, relay(server.port, delay_s=DELAY_S) as link, FakeModel() as model:
                ssh, fresh, warm = [], [], []
                for _ in range(RUNS):
                    ssh.append(await _ssh_true(server, user, link.port))
                    shutil.rmtree(user.home / ".cache", ignore_errors=True)
                    fresh.append(await _ccb_hello(server, user, link.port, model, top / "laptop"))
                    warm.append(await _ccb_hello(server, user, link.port, model, top / "laptop"))
    base = statistics.median(ssh)
    print(f"ssh host true              {base * 1000:6.0f} ms")
    for what, values, limit in (("fresh host to hello", fresh, 1.25), ("warm host to hello", warm, 1.1)):
        median = statistics.median(values)
        print(f"ccb ssh, {what:<20} {median * 1000:4.0f} ms   {median / base:.2f} times (limit {limit})")


if __name__ == "__main__":
    asyncio.run(main())
