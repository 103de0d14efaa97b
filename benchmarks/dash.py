"""`ccb dash` over 50 hosts in memory with 200 sessions: the first rows, the CPU while nothing changes and while rows
do, and the memory of the process. There is no peer: the limits are those of docs/guide/dash.md.

An argument is the number of seconds of each measurement (20 without one).
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import time
from contextlib import AsyncExitStack

from tests.support.hosts.reporting_host import ReportingHost
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


async def main() -> None:
    seconds = float(sys.argv[1]) if sys.argv[1:] else 20.0
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
    print(f"dash: first rows {first:.2f} s, idle {idle:.1%} CPU, {CHANGES_S} changes/s {busy:.1%} CPU, {memory:.0f} MB")
    for what, is_, most in (("first", first, MOST_FIRST_S), ("idle", idle, MOST_IDLE_CPU), ("MB", memory, MOST_MB)):
        assert is_ <= most, f"{what}: {is_:.3g}, at most {most:g}"
