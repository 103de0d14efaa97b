"""`make soak`: a session of 2,000 turns with 50 MB of tool output, 25 of them of 2 MB, over a real sshd. The worker
grows by less than 10 MB, the laptop by less than 40 MB, and a lost connection is back in less than 1 s throughout."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.session_run import rss_mb
from tests.faults.play.host import left_by
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import HostUser, host_user, sshd
from tests.support.machine.processes import name_of, processes_of
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import Recorded, uses
from tests.support.network.relay import Relay, relay
from tests.support.person.laptop import STREAMS, Running, make_laptop, user_message

from ccb.tunnel.reconnecting import STEADY_S

OUTPUT = 50_000_000
LARGE = 2_000_000
WARM = 0.02  # share of the turns after which memory is measured first

WORKER_MB, LAPTOP_MB, REATTACH_S = 10.0, 40.0, 1.0


@dataclass
class Figures:
    """Memory of worker and laptop in MB, after the first turns and at the end; seconds of each reattach; bytes of
    output of the tools."""

    weights: list[tuple[float, float]] = field(default_factory=list)
    reattached_s: list[float] = field(default_factory=list)
    output: int = 0


def _model(every: int) -> Any:
    def answer(request: Recorded) -> Mapping[str, Any]:
        if request.tool_results:
            return {"text": "That is done."}
        turn = int(request.last_user_text.rsplit(maxsplit=1)[-1])
        command = f"head -c {LARGE} /dev/zero | tr '\\0' x" if turn % every == 0 else f"echo turn {turn}"
        return uses("Bash", command=command)

    return answer


async def soak(turns: int) -> Figures:
    figures = Figures()
    every = max(1, turns * LARGE // OUTPUT)
    with tempfile.TemporaryDirectory(prefix="ccb-soak-") as name, host_user(Path(name)) as user:
        directory = Path(name)
        async with (
            sshd(directory / "sshd") as server,
            FakeModel([_model(every)]) as model,
            relay(server.port) as between,
        ):
            host = Host(make_laptop(directory, model.url), model, server, user)
            words = ["-p", *STREAMS, "--allowedTools", "Bash", "--reconnect-timeout", "60"]
            async with host.start(*words, port=between.port) as run:
                for turn in range(turns):
                    await _turn(run, turn)
                    model.requests.clear()  # each holds the whole conversation
                    figures.output += LARGE if turn % every == 0 else 10
                    if turn == int(turns * WARM) or turn == turns - 1:
                        figures.weights.append(_weights(run, user))
                    if turn % max(1, turns // 20) == 0:
                        took = await _reattach(run, between)
                        figures.reattached_s.append(took)
                        worker, laptop = _weights(run, user)
                        _say(f"turn {turn}: {worker:.1f} and {laptop:.1f} MB, attached again in {took:.2f} s")
                done = await run.finish()
                assert done.code == 0, done.stderr
            assert await left_by(user) == []
    return figures


async def _turn(run: Running, turn: int) -> None:
    await run.send(user_message(f"turn {turn}"))
    result = await run.until("result", timeout=60)
    assert not result["is_error"], result
    run.lines.clear()


def _weights(run: Running, user: HostUser) -> tuple[float, float]:
    """Return the memory of the worker and of the laptop in MB."""
    (daemon,) = [process.pid for process in processes_of(user) if name_of(process) == "ccb"]
    return rss_mb(daemon), rss_mb(run.process.pid)


async def _reattach(run: Running, between: Relay) -> float:
    """Seconds until ccb is connected again. The next cut must not come at once, or ccb would wait longer each time."""
    assert run.process.stderr is not None
    start = time.monotonic()
    between.cut()
    async with asyncio.timeout(30):
        while b"connected again" not in await run.process.stderr.readline():
            pass
    took = time.monotonic() - start
    await asyncio.sleep(STEADY_S)
    return took


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("turns", type=int, nargs="?", default=2000)
    given = parser.parse_args()
    started = time.monotonic()
    figures = asyncio.run(soak(given.turns))
    before, after = figures.weights
    worker, laptop = after[0] - before[0], after[1] - before[1]
    slowest = max(figures.reattached_s)
    _say(f"{given.turns} turns, {figures.output / 1e6:.0f} MB of tool output, {time.monotonic() - started:.0f} s")
    _say(f"worker {before[0]:.1f} MB, grew by {worker:.1f} MB (limit {WORKER_MB:g})")
    _say(f"laptop {before[1]:.1f} MB, grew by {laptop:.1f} MB (limit {LAPTOP_MB:g})")
    _say(f"attached again in {slowest:.2f} s at most (limit {REATTACH_S:g})")
    return 0 if worker < WORKER_MB and laptop < LAPTOP_MB and slowest < REATTACH_S else 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
