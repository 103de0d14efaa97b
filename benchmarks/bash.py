"""Bash calls: how fast one ends, and what one that prints much costs.

Esc in a call that ignores SIGTERM and has children of its own: everything dead within 200 ms. The peer is SIGKILL to a
plain process group, the least that any implementation needs. Memory of the worker: idle under 30 MB, and under 60 MB
while Bash runs `yes | head -c 1G`; the peer is the shell command alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path

from benchmarks.ratio import compare, single, versus
from benchmarks.session_run import run_ccb
from tests.support.model.fake_model import FakeModel

from ccb.remote.tools.toolset import close_context, default_tools, make_context

RUNS = 15
STUBBORN = "trap '' TERM INT HUP; sleep 300 & setsid sleep 301 & touch up; while :; do sleep 1; done"
MUCH = "yes | head -c 1G"


async def _up(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.005)
    path.unlink()


async def _interrupt(directory: Path) -> float:
    """Return the seconds from the cancellation of the call to its end; by then its processes are dead."""
    context = make_context(str(directory), str(directory / "outputs"))
    bash = next(tool for tool in default_tools() if tool.name == "Bash")
    call = asyncio.ensure_future(bash.run({"command": STUBBORN}, context))
    await _up(directory / "up")
    start = time.monotonic()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    taken = time.monotonic() - start
    await close_context(context)
    return taken


async def _kill(directory: Path) -> float:
    process = await asyncio.create_subprocess_exec("bash", "-c", STUBBORN, cwd=directory, start_new_session=True)
    await _up(directory / "up")
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    return time.monotonic() - start


async def _ends(directory: Path) -> None:
    ours = [await _interrupt(directory) for _ in range(RUNS)]
    peer = [await _kill(directory) for _ in range(RUNS)]
    compare("interrupt of a Bash call that ignores SIGTERM", ours, "SIGKILL alone", peer, None)
    single("the same, worst", max(ours) * 1000, 200, unit="ms")


async def _memory(home: Path) -> None:
    start = time.monotonic()
    alone = await asyncio.create_subprocess_shell(f"{MUCH} | cat > /dev/null")
    await alone.wait()
    base = time.monotonic() - start
    call = {"type": "tool_use", "name": "Bash", "input": {"command": MUCH}}
    async with FakeModel([{"blocks": [call]}, {"text": "done"}]) as model:
        run = await run_ccb([str(home)], model, home, watch=True)
        sent = len(model.requests[1].tool_result_text)
    single("worker, idle", run.worker_idle_mb, 30, unit="MB")
    single(f"worker while Bash runs {MUCH}", run.worker_peak_mb, 60, unit="MB")
    single("the same, to the model", sent, 30_000, unit="chars")
    versus("the same, a turn", run.result_s - run.hello_s, "the command into cat", base, None, unit="s")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        await _ends(Path(name))
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        await _memory(Path(name))
