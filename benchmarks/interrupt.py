"""Esc in a Bash call that ignores SIGTERM and has children of its own: everything dead within 200 ms. The peer is
SIGKILL to a plain process group, the least that any implementation needs."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

from ccb.remote.tools.registry import close_context, default_tools, make_context

RUNS = 15
COMMAND = "trap '' TERM INT HUP; sleep 300 & setsid sleep 301 & touch up; while :; do sleep 1; done"


async def _up(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.005)
    path.unlink()


async def _interrupt(directory: Path) -> float:
    """Return the milliseconds from the cancellation of the call to its end; by then its processes are dead."""
    context = make_context(str(directory), str(directory / "outputs"))
    bash = next(tool for tool in default_tools() if tool.name == "Bash")
    call = asyncio.ensure_future(bash.run({"command": COMMAND}, context))
    await _up(directory / "up")
    start = time.monotonic()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    taken = (time.monotonic() - start) * 1000
    await close_context(context)
    return taken


async def _kill(directory: Path) -> float:
    process = await asyncio.create_subprocess_exec("bash", "-c", COMMAND, cwd=directory, start_new_session=True)
    await _up(directory / "up")
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    return (time.monotonic() - start) * 1000


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        directory = Path(name)
        ours = [await _interrupt(directory) for _ in range(RUNS)]
        peer = [await _kill(directory) for _ in range(RUNS)]
    median, base = statistics.median(ours), statistics.median(peer)
    print(
        f"interrupt of a Bash call that ignores SIGTERM: median {median:.0f} ms, worst {max(ours):.0f} ms (limit 200); "
        f"SIGKILL alone {base:.1f} ms, ratio {median / base:.0f}"
    )


if __name__ == "__main__":
    asyncio.run(main())
