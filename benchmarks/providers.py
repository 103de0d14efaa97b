"""What translating costs: microseconds for each event of each dialect, and the memory of a proxy with 100 streams.

Run: .venv/bin/python -m benchmarks.providers
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from tests.support.providers.adapters import MODELS, Adapter, settings_for
from tests.support.providers.dialect_server import KEY, DialectServer, Raw, stream_of
from tests.support.providers.readers import reader_of, translated
from tests.support.providers.turns import Said

from ccb.local.providers.choosing import session_provider
from ccb.tunnel.proxy.core import AuthProxy

STREAMS = 100
LIMIT_US, LIMIT_MB = 50, 110
SAID = Said("some words of an answer " * 800, "thinking " * 300, (("Read", {"path": "x" * 2000}), ("Bash", {})))


def event_cost(flavour: str) -> tuple[int, float]:
    """The events of a stream, and the microseconds for each: the least of several runs."""
    stream = stream_of(SAID, 1, flavour)
    events = stream.count(b"data: ")
    parts = [stream[start : start + 1400] for start in range(0, len(stream), 1400)]
    least = 1.0
    for _ in range(7):
        reader = reader_of(flavour)
        started = time.perf_counter()
        translated(flavour, parts, reader)
        least = min(least, (time.perf_counter() - started) / events)
    return events, least * 1e6


def resident_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def _child(flavour: str, url: str) -> None:
    """A proxy as a process of its own: 100 calls at once, then its memory."""
    server = DialectServer(flavour)
    server.url = url
    provider = session_provider({"OTHER_KEY": KEY, "ANTHROPIC_API_KEY": "k"}, settings_for(server), MODELS[flavour])
    async with AuthProxy(provider) as proxy:
        it = Adapter(server, proxy)
        messages = [{"role": "user", "content": "x" * 20_000}]
        await it.ask(messages)
        at_once = asyncio.Semaphore(60)  # the proxy takes 64 at once

        async def one() -> float:
            async with at_once:
                told = await it.ask(messages)
            assert told.status == 200
            return resident_mb()

        most = max(await asyncio.gather(*(one() for _ in range(STREAMS))))
    print(json.dumps({"mb": most, "sdk": any(name in sys.modules for name in ("openai", "anthropic"))}))


async def _memory(flavour: str) -> tuple[float, bool]:
    whole = stream_of(SAID, 1, flavour)
    server = DialectServer(flavour, *(Raw(whole) for _ in range(STREAMS + 1)))
    async with server.running():
        command = (sys.executable, "-m", "benchmarks.providers", "--child", flavour, server.url)
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await child.communicate()
    found = json.loads(out)
    return found["mb"], found["sdk"]


async def _main() -> None:
    for flavour in MODELS:
        events, microseconds = event_cost(flavour)
        print(f"{flavour:11} {events:6} events, {microseconds:5.1f} µs each (limit {LIMIT_US})")
    for flavour in ("openai", "responses"):
        megabytes, sdk = await _memory(flavour)
        print(f"{flavour}: {STREAMS} calls, 60 at once: {megabytes:.0f} MB (limit {LIMIT_MB}), an SDK loaded: {sdk}")


if __name__ == "__main__":
    asyncio.run(_child(*sys.argv[2:]) if sys.argv[1:2] == ["--child"] else _main())
