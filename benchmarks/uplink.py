"""What model calls cost on the way up from the host: a session of 200 calls against the same session with whole request
bodies, and the round trips of 21 calls of a growing conversation over a kernel network (100 ms, 10 Mbit/s).

The peer speaks the protocol of an older laptop, which takes no deltas.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.kernel_network import KernelNetwork, kernel_network, why_not
from benchmarks.ratio import PeerMissing, single, versus
from tests.support.hosts.sshd import Sshd, host_user, sshd
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.network.relay import Relay, relay

CALLS = 200
MAX_SENT = 0.03
RTT_S, RATE = 0.1, 10_000_000 / 8
FAR_CALLS = 21
MAX_TRIPS = 21.5
RUNS = 3
HISTORIES = (20, 400)  # KB, with what ccb itself says in every request

_CCB = "import sys; from ccb.__main__ import main; sys.exit(main())"
_OLDER = (
    "import ccb.tunnel.wire.frames as wire; new = wire.Attach; wire.Attach = lambda *fields, **_: new(*fields); " + _CCB
)


@dataclass(frozen=True)
class Host:
    """How a run of ccb reaches the host, and where it keeps its own files."""

    target: Sequence[str]
    home: Path


def _script(calls: int, lines: int) -> list[dict[str, Any]]:
    """Return the answers of a turn of `calls` model calls. Each tool prints `lines` lines that are new."""
    command = "seq -f 'line %g of call {}' {} {}"
    tools = [command.format(n, n * 1000, n * 1000 + lines - 1) for n in range(calls - 1)]
    return [
        *({"blocks": [{"type": "tool_use", "name": "Bash", "input": {"command": c}}]} for c in tools),
        {"text": "done"},
    ]


async def _run(host: Host, model: FakeModel, prompt: str, program: str = _CCB) -> None:
    """Run one turn to its end."""
    host.home.mkdir(exist_ok=True)
    asked = host.home / "prompt"
    asked.write_text(prompt, encoding="utf-8")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(host.home),
        "ANTHROPIC_API_KEY": API_KEY,
        "ANTHROPIC_BASE_URL": model.url,
    }
    argv = [sys.executable, "-c", program, *host.target, "-p", "--allowedTools", "Bash"]
    with asked.open("rb") as stdin:
        process = await asyncio.create_subprocess_exec(*argv, stdin=stdin, stdout=asyncio.subprocess.DEVNULL, env=env)
    assert await process.wait() == 0


async def _sent(host: Host, way: Relay, model: FakeModel, program: str) -> tuple[int, int]:
    """Return how many bytes the host has sent in a session of CALLS calls, and how many bytes their requests have."""
    before, first = way.down, len(model.requests)
    model.add(*_script(CALLS, 40))
    await _run(host, model, "go", program)
    return way.down - before, sum(request.size for request in model.requests[first:])


async def _session(top: Path, server: Sshd, user: str) -> None:
    async with relay(server.port) as way, FakeModel() as model:
        host = Host(["ssh", f"{user}@127.0.0.1:~", *server.client_options(way.port), *sys.argv[1:]], top / "laptop")
        model.add({"text": "ok"})
        await _run(host, model, "go")  # the worker is on the host from now on
        ours, size = await _sent(host, way, model, _CCB)
        plain, _ = await _sent(host, way, model, _OLDER)
    what = f"{CALLS} calls with requests of {size / 1e6:.1f} MB: sent"
    versus(what, ours / 1e6, "older protocol", plain / 1e6, MAX_SENT, unit="MB")


async def _calls(host: Host, model: FakeModel, size: int, program: str) -> float:
    """Return the seconds from the first request to the one after FAR_CALLS calls, as they reach the model."""
    model.add(*_script(FAR_CALLS + 1, 20))
    words = " ".join(f"{number:x}" for number in range(size * 200))
    first, arrived = len(model.requests), []
    run = asyncio.create_task(_run(host, model, f"go {words[: size * 1000]}", program))
    for number in range(first, first + FAR_CALLS + 1):
        await model.until(partial(_has_more_than, number))
        arrived.append(time.monotonic())
    await run
    return arrived[-1] - arrived[0]


def _has_more_than(number: int, model: FakeModel) -> bool:
    return len(model.requests) > number


async def _round_trip(network: KernelNetwork) -> float:
    """Return the seconds of a round trip as this network and this machine have them."""
    with network.listen() as listener:
        listener.setblocking(False)
        opened = asyncio.open_connection(*listener.getsockname())
        answering = asyncio.create_task(_echo(listener))
        reader, writer = await opened
        start = time.monotonic()
        for _ in range(FAR_CALLS):
            writer.write(b"?")
            await reader.readexactly(1)
        took = time.monotonic() - start
        writer.close()
        await answering
    return took / FAR_CALLS


async def _echo(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    found, _ = await loop.sock_accept(listener)
    with found:
        while data := await loop.sock_recv(found, 1):
            await loop.sock_sendall(found, data)


async def _trips(top: Path, user: str) -> None:
    if reason := why_not():
        raise PeerMissing(f"a kernel network cannot be made: {reason}")
    async with (
        kernel_network(0.0) as network,
        sshd(top / "far", address=network.address, wrapper=network.inside) as server,
        FakeModel() as model,
    ):
        host = Host(["ssh", f"{user}@{server.address}:~", *server.client_options(), *sys.argv[1:]], top / "laptop")
        for size in HISTORIES:
            for what, program in (("", _CCB), (", older protocol", _OLDER)):
                near, far, unit = [], [], []
                for _ in range(RUNS):
                    await network.change(0.0)
                    near.append(await _calls(host, model, max(0, size - 17), program))
                    await network.change(RTT_S, RATE)
                    unit.append(await _round_trip(network))
                    far.append(await _calls(host, model, max(0, size - 17), program))
                trips = (min(far) - min(near)) / min(unit)
                figure = f"{FAR_CALLS} calls, {size} KB of history{what}"
                single(figure, trips, None if what else MAX_TRIPS, unit="trips")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        top = Path(name)
        with host_user(top) as user:
            async with sshd(top / "sshd") as server:
                await _session(top, server, user.name)
            await _trips(top, user.name)
