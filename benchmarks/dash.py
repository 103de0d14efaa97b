"""`ccb dash` over 50 hosts with 200 sessions: the first rows, the CPU while nothing changes and while rows do, and the
memory of the process. The limits are those of docs/guide/dash.md.

First the hosts are 50 real logins at one sshd of this machine, whose sessions each of them shows; the peer of these are
50 times `ssh HOST true`, 16 at once. Then the hosts are in memory. An argument is the number of seconds of each
measurement (20 without one).
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
from benchmarks.ratio import single, versus
from benchmarks.session_run import CCB
from tests.support.hosts.reporting_host import ReportingHost
from tests.support.hosts.sshd import host_user, sshd
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.person.terminal import terminal
from tests.support.screens.dash_scene import dash_desk, dash_row

HOSTS, SESSIONS = 50, 200
CHANGES_S = 10  # changed rows a second
MOST_FIRST_S, MOST_IDLE_CPU, MOST_MB = 1.0, 0.02, 150.0
_STATES = ("idle", "idle", "running", "ended", "requires_action")


def _hosts() -> list[ReportingHost]:
    rows = [dash_row(n, random.choice(_STATES), prompt=f"task {n} of many", last="text " * 30) for n in range(SESSIONS)]
    return [ReportingHost(f"host-{n:02}", *rows[n::HOSTS]) for n in range(HOSTS)]


async def _cpu(seconds: float) -> float:
    """CPU seconds of this process for each second that passes."""
    began, used = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - used) / (time.monotonic() - began)


async def _change(hosts: list[ReportingHost]) -> None:
    while True:
        await asyncio.sleep(1 / CHANGES_S)
        host = random.choice(hosts)
        host.tell(random.choice(list(host.rows)), state=random.choice(_STATES), last=f"news {random.random()}")


async def _in_memory(seconds: float) -> None:
    hosts, began = _hosts(), time.monotonic()
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(dash_desk(*hosts, size=(160, 50)))
        await at.sees(f"{HOSTS} hosts", f"{SESSIONS} sessions")
        first = time.monotonic() - began
        idle = await _cpu(seconds)
        changing = asyncio.create_task(_change(hosts))
        busy = await _cpu(seconds)
        changing.cancel()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    of_changes = f"{CHANGES_S} changes/s {busy:.1%} CPU"
    print(f"dash in memory: first rows {first:.2f} s, idle {idle:.1%} CPU, {of_changes}, {memory:.0f} MB")
    for what, is_, most in (("first", first, MOST_FIRST_S), ("idle", idle, MOST_IDLE_CPU), ("MB", memory, MOST_MB)):
        assert is_ <= most, f"{what}: {is_:.3g}, at most {most:g}"


async def _over_ssh(seconds: float) -> None:
    """The first measurement is of one login: it deploys, and compiles what the dash imports."""
    names = [f"host-{number:02}" for number in range(HOSTS)]
    with tempfile.TemporaryDirectory(prefix="ccb-dash-") as directory, host_user(Path(directory)) as user:
        top, laptop = Path(directory), Path(directory) / "laptop"
        laptop.mkdir()
        async with sshd(top / "sshd", ["MaxStartups 300"]) as server, FakeModel() as model:
            model.add({"text": "12.1", "times": 0})
            env = {
                "PATH": os.environ["PATH"], "HOME": str(laptop), "ANTHROPIC_API_KEY": API_KEY,
                "ANTHROPIC_BASE_URL": model.url,
            }  # fmt: skip
            own = ["-o", "HostName=127.0.0.1", "-o", f"User={user.name}"]
            way = [*server.client_options(), *own]
            for number in range(SESSIONS // HOSTS):
                argv = [CCB, "ssh", f"{names[0]}:{user.home}", "-p", f"task {number}", *way]
                assert await (await asyncio.create_subprocess_exec(*argv, env=env, stdin=DEVNULL)).wait() == 0
            await _shown([CCB, "dash", *way, names[0]], env, 1, 5.0)
            first, last, idle = await _shown([CCB, "dash", *way, *names], env, HOSTS, seconds)
            ssh = ["ssh", *["-p" if each == "-P" else each for each in way], "{}", "true"]
            argv, began = ["xargs", "-P", "16", "-I{}", *ssh], time.monotonic()
            peer = await asyncio.create_subprocess_exec(*argv, env=env, stdin=PIPE)
            await peer.communicate("\n".join(names).encode())
            peer_s = time.monotonic() - began
    single("dash over ssh: first rows", first, MOST_FIRST_S, unit="s")
    versus("dash over ssh: all rows", last, "ssh HOST true", peer_s, 2.0, unit="s")
    single("dash over ssh: idle", 100 * idle, 100 * MOST_IDLE_CPU, unit="% CPU")


async def _shown(argv: list[str], env: Mapping[str, str], hosts: int, seconds: float) -> tuple[float, float, float]:
    """Return the seconds until the first rows and until all rows, and the CPU seconds a second while it is idle."""
    began = time.monotonic()
    async with terminal(argv, env, env["HOME"], (120, 40)) as at:
        await at.shows("task 0")
        first = time.monotonic() - began
        await at.shows(f"{hosts * SESSIONS // HOSTS} sessions")
        last = time.monotonic() - began
        await asyncio.sleep(min(5.0, seconds))  # until the terminal is drawn and the garbage is gone
        before = sum(psutil.Process(at.process.pid).cpu_times()[:2])
        await asyncio.sleep(seconds)
        used = sum(psutil.Process(at.process.pid).cpu_times()[:2]) - before
        return first, last, used / seconds if seconds else 0.0


async def main() -> None:
    seconds = float(sys.argv[1]) if sys.argv[1:] else 20.0
    await _over_ssh(seconds)
    await _in_memory(seconds)
