"""The names of files behind an `@`, in a tree of 100,000: first and later answers of a real worker against
`git ls-files`, which only lists them, and how long the worker's loop lets a ping wait meanwhile."""

from __future__ import annotations

import asyncio
import functools
import statistics
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from benchmarks.ratio import bound, compare, in_turn
from tests.remote.worker_process import Laptop, worker_host

from ccb.tunnel.wire.frames import FindNames, NamesFound, Ping, Pong

FIRST_S = 0.05
PING_S = 0.02
TYPED = "pkg31/module_07/file_11"
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b")


def _plant(root: Path) -> None:
    for number in range(2_000):
        folder = root / f"pkg{number % 50:02}/module_{number // 50:02}"
        folder.mkdir(parents=True)
        for each in range(50):
            (folder / f"file_{each:02}_handler.py").touch()
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
        subprocess.run([*GIT, *command], cwd=root, check=True)


async def _ask(laptop: Laptop, number: int, query: str) -> float:
    began = time.perf_counter()
    await laptop.send(FindNames(laptop.epoch, number, query))
    found = await laptop.next(NamesFound, lambda frame: frame.request == number)
    took = time.perf_counter() - began
    assert found.body["names"], query
    return took


async def _settled(laptop: Laptop) -> None:
    settled, number = False, 2_000
    while not settled:
        number += 1
        await laptop.send(FindNames(laptop.epoch, number, "p"))
        answer = await laptop.next(NamesFound, functools.partial(_is_to, number))
        settled = answer.body["settled"]


def _is_to(number: int, frame: NamesFound) -> bool:
    return frame.request == number


async def _ping(laptop: Laptop, number: int) -> float:
    began = time.perf_counter()
    await laptop.send(Ping(laptop.epoch, number))
    await laptop.next(Pong, lambda frame: frame.n == number)
    return time.perf_counter() - began


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        async with worker_host(Path(name)) as host:
            _plant(host.project)
            first, later, idle, busy = [], [], [], []
            for _ in range(5):
                laptop = await host.connect(str(uuid.uuid4()))
                await laptop.attach()
                idle += [await _ping(laptop, number) for number in range(20)]
                first.append(await _ask(laptop, 1, "p"))
                for number in range(20, 60):  # while the tree is being listed
                    await laptop.send(FindNames(laptop.epoch, 1_000 + number, "p"))
                    busy.append(await _ping(laptop, number))
                await _settled(laptop)
                later += [await _ask(laptop, number, TYPED[:number]) for number in range(2, len(TYPED) + 1)]
                await laptop.stop()

            async def listed() -> float:
                began = time.perf_counter()
                git = await asyncio.create_subprocess_exec(
                    *("git", "ls-files", "-co", "--exclude-standard"), cwd=host.project, stdout=subprocess.DEVNULL
                )
                await git.wait()
                return time.perf_counter() - began

            (theirs,) = await in_turn(listed, runs=5)
            compare("first names behind an @", first, "git ls-files", theirs, 1)
            bound("first names behind an @", first, FIRST_S)
            compare("names after another character", later, "git ls-files", theirs, 1)
            bound("names after another character", later, FIRST_S)
            bound("slowest 1 % of the pings meanwhile", [statistics.quantiles(busy, n=100)[98]], PING_S)
            compare("a ping meanwhile", busy, "idle", idle, None)
