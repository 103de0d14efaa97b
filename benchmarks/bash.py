"""Bash calls: how fast one ends, and what one that prints much costs.

Esc in a call that ignores SIGTERM and has children of its own: everything dead within 200 ms. The peer is SIGKILL to a
plain process group, the least that any implementation needs. Memory of the worker: idle under 30 MB, and under 60 MB
while Bash runs `yes | head -c 1G`; the peer is the shell command alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

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
    """Return the milliseconds from the cancellation of the call to its end; by then its processes are dead."""
    context = make_context(str(directory), str(directory / "outputs"))
    bash = next(tool for tool in default_tools() if tool.name == "Bash")
    call = asyncio.ensure_future(bash.run({"command": STUBBORN}, context))
    await _up(directory / "up")
    start = time.monotonic()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    taken = (time.monotonic() - start) * 1000
    await close_context(context)
    return taken


async def _kill(directory: Path) -> float:
    process = await asyncio.create_subprocess_exec("bash", "-c", STUBBORN, cwd=directory, start_new_session=True)
    await _up(directory / "up")
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    return (time.monotonic() - start) * 1000


async def _ends(directory: Path) -> None:
    ours = [await _interrupt(directory) for _ in range(RUNS)]
    peer = [await _kill(directory) for _ in range(RUNS)]
    median, base = statistics.median(ours), statistics.median(peer)
    print(
        f"interrupt of a Bash call that ignores SIGTERM: median {median:.0f} ms, worst {max(ours):.0f} ms (limit 200); "
        f"SIGKILL alone {base:.1f} ms, ratio {median / base:.0f}"
    )


async def _memory(home: Path) -> None:
    start = time.monotonic()
    alone = await asyncio.create_subprocess_shell(f"{MUCH} | cat > /dev/null")
    await alone.wait()
    base = time.monotonic() - start
    call = {"type": "tool_use", "name": "Bash", "input": {"command": MUCH}}
    async with FakeModel([{"blocks": [call]}, {"text": "done"}]) as model:
        run = await run_ccb([str(home)], model, home, watch=True)
        sent = len(model.requests[1].tool_result_text)
    print(f"worker idle {run.worker_idle_mb:.0f} MB (limit 30)")
    print(
        f"{MUCH}: worker at most {run.worker_peak_mb:.0f} MB (limit 60), "
        f"{sent} characters to the model (limit 30000), "
        f"{(run.result_s - run.hello_s) / base:.1f} times the command into cat"
    )


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        await _ends(Path(name))
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        await _memory(Path(name))


if __name__ == "__main__":
    asyncio.run(main())
