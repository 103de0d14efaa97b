"""How far one process with the auth proxies of many sessions goes, and what a second one adds: calls a second, 1,000
streams, memory, and a fleet of 10,000 tasks of which 1,000 run at once. docs/guide/fleet.md has what it printed.

Proxies, budgets, ledger, links and the worker's model streams are the real ones; only the provider is scripted, and
tasks do nothing between their calls. On a machine with few cores the load takes its share, so CPU seconds of the
proxies are what counts. There is no peer.

Run: .venv/bin/python -m benchmarks proxy_load [calls] [streams] [tasks] [two]
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.proxy_budget import process

DRIVERS, AT_ONCE = 4, 1_000


async def _asked(it: Process) -> list[Any]:
    assert it.stdin is not None and it.stdout is not None
    it.stdin.write(b"\n")
    return list(json.loads(await it.stdout.readline()))


@asynccontextmanager
async def _proxies(home: Path, budget: float, count: int) -> AsyncIterator[list[tuple[Process, str]]]:
    async with AsyncExitStack() as stack:
        _, url = await stack.enter_async_context(process("tests.support.model.bulk_upstream"))
        made = [process("benchmarks.proxies_alone", str(home), url, str(budget)) for _ in range(count)]
        yield [await stack.enter_async_context(each) for each in made]


async def _load(
    name: str, tasks: int, at_once: int, calls: int, events: int, gap: int, budget: float = 0, proxies: int = 1
) -> None:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = await stack.enter_async_context(_proxies(home, budget, proxies))
        words = [*map(str, (tasks // DRIVERS, at_once // DRIVERS, calls, events, gap))]
        drivers = [
            await stack.enter_async_context(process("benchmarks.tasks_alone", made[n % proxies][1], *words))
            for n in range(DRIVERS)
        ]
        idle, began = [await _asked(each) for each, _ in made], time.monotonic()
        answers = await asyncio.gather(*(_asked(each) for each, _ in drivers))
        took = time.monotonic() - began
        busy = [await _asked(each) for each, _ in made]
    _print(name, answers, took, idle, busy)


def _print(name: str, answers: Sequence[list[Any]], took: float, idle: list[list[Any]], busy: list[list[Any]]) -> None:
    outcomes: Counter[str] = Counter()
    for each in answers:
        outcomes.update(each[0])
    calls = sum(outcomes.values())
    used = sum(after[0] - before[0] for before, after in zip(idle, busy, strict=True))
    first, late = ([max(each[at][cut] for each in answers) for cut in (0, 1)] for at in (2, 3))
    print(f"{name}: {dict(outcomes)} in {took:.1f} s = {calls / took:.0f}/s; CPU of the proxies {used:.1f} s = "
          f"{1000 * used / calls:.2f} ms a call, {100 * used / took:.0f} % of a core")  # fmt: skip
    print(f"  first byte {first[0]:.0f} ms, p99 {first[1]:.0f} ms; an event {late[0]:.0f} ms, p99 {late[1]:.0f} ms")
    for before, after in zip(idle, busy, strict=True):
        print(f"  a proxy: {before[1]:.0f} MB connected, {after[1]:.0f} MB after, {after[2]} threads; "
              f"${after[3]:.2f} in the ledger", flush=True)  # fmt: skip


async def main() -> None:
    chosen = sys.argv[1:] or ["calls", "streams", "tasks", "two"]
    if "calls" in chosen:
        await _load("short calls, no budget", 400, 400, 10, 20, 0)
        await _load("short calls, a shared budget", 400, 400, 10, 20, 0, budget=1e6)
    if "streams" in chosen:
        for at_once in (100, 400, 1_000):
            await _load(f"{at_once} streams, 10 events/s each", at_once, at_once, 1, 100, 100, budget=1e6)
    if "tasks" in chosen:
        await _load("10,000 tasks, 1,000 at once", 10_000, AT_ONCE, 3, 40, 250, budget=1e6)
    if "two" in chosen:
        await _load("short calls, two proxies", 400, 400, 10, 20, 0, budget=1e6, proxies=2)
