"""`ccb fleet run` with 200 sessions at once on one SSH server: until all have asked their model, and the memory of the
one process then. Beside it `xargs -P` with a `ccb -p` for each host, which is what people do; of that only as many as
the memory of this machine has room for.

The model answers when all have asked, so all of them do run at once. An argument is another number of sessions.
`proxy_load` plays 10,000 tasks, 1,000 at once, and shows how far one proxy goes.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ratio import single, versus
from benchmarks.session_run import CCB, rss_mb
from tests.support.hosts.embedded_sshd import embedded_sshd
from tests.support.hosts.sshd import Sshd
from tests.support.machine.processes import with_home
from tests.support.model.fake_model import API_KEY, FakeModel

SESSIONS, OF_PEER = 200, 10
MOST_MB = 1000.0
LIMIT_S = 600.0


@dataclass(frozen=True)
class Measured:
    """Seconds until all sessions had asked the model; CPU seconds and memory (MB) of the laptop's side until then."""

    asked_s: float
    cpu_s: float
    mb: float


async def _measure(argv: Sequence[str], sessions: int, server: Sshd, home: Path, stdin: bytes = b"") -> Measured:
    async with FakeModel() as model:
        model.add({"text": "12.1", "stall_after": 3, "times": 0})
        env = {
            "PATH": os.environ["PATH"], "HOME": str(home), "ANTHROPIC_API_KEY": API_KEY, "SSL_CERT_FILE": os.devnull,
            "ANTHROPIC_BASE_URL": model.url, "PYTHONPATH": os.pathsep.join(sys.path),
        }  # fmt: skip
        start = time.monotonic()
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*argv, stdin=pipe if stdin else none, stdout=pipe, env=env)
        ending = asyncio.create_task(process.communicate(stdin or None))
        asking = asyncio.create_task(model.until(lambda model: len(model.requests) >= sessions, LIMIT_S))
        await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
        assert asking.done(), ending.result()
        asked, clients = time.monotonic() - start, with_home(home)
        cpu, mb = sum(sum(each.cpu_times()[:2]) for each in clients), sum(rss_mb(each.pid) for each in clients)
        model.release()
        out, _ = await ending
        assert process.returncode == 0, out[-2000:]
        return Measured(asked, cpu, mb)


async def main() -> None:
    sessions = int(sys.argv[1]) if sys.argv[1:] else SESSIONS
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the server and its children are here, too
    with tempfile.TemporaryDirectory(prefix="ccb-fleet-") as directory:
        top = Path(directory)
        host, laptop = top / "host", top / "laptop"
        (host / "run").mkdir(mode=0o700, parents=True)
        laptop.mkdir()
        places = [host / f"{number:03}" for number in range(sessions)]
        for each in places:
            each.mkdir()
        env = {"PATH": os.environ["PATH"], "HOME": str(host), "XDG_RUNTIME_DIR": str(host / "run")}
        async with embedded_sshd(top, env, host) as server:
            way = [*server.client_options(), "--no-session-persistence"]
            hosts = [f"host-{each.name}:{each}" for each in places]
            name = ["-o", "HostName=127.0.0.1"]
            await _measure([CCB, "fleet", "run", "-p", "go", *way, *name, hosts[0]], 1, server, laptop)  # deploys
            fleet = [CCB, "fleet", "run", "-p", "go", "--jobs", str(sessions), *way, *name, *hosts]
            ours = await _measure(fleet, sessions, server, laptop)
            several = min(OF_PEER, sessions)
            each_host = ["xargs", "-P", str(several), "-I{}", CCB, "ssh", "{}", "-p", "go", *way, *name]
            peer = await _measure(each_host, several, server, laptop, "\n".join(hosts[:several]).encode())
    what = f"fleet of {sessions}"
    versus(f"{what}: all sessions at work", ours.asked_s, f"{several} ccb -p in", peer.asked_s, None, unit="s")
    versus(f"{what}: CPU of a session", ours.cpu_s / sessions, "ccb -p", peer.cpu_s / several, 0.5, unit="s")
    single(f"{what}: memory", ours.mb, MOST_MB, unit="MB")
    versus(f"{what}: memory of a session", ours.mb / sessions, "ccb -p", peer.mb / several, 0.2, unit="MB")
