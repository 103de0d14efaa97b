"""The auth proxy against its upstream without it, in the same run: first byte, 50 streams, throughput, memory."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import aiohttp
from benchmarks.ratio import compare, single, versus
from tests.support.proxy.proxy_bench import HEADERS, MB, Bench, bench, drain, event_latency, growth

ROUNDS = 200  # with those to warm up, fewer calls than the proxy holds back


async def _first_byte(session: aiohttp.ClientSession) -> float:
    start = time.perf_counter()
    async with session.post("/v1/messages?events=2&gap=1", data=b"{}".ljust(1000), headers=HEADERS) as answer:
        await answer.content.readany()
        took = time.perf_counter() - start
        await answer.read()
    return took * 1000


async def _first_bytes(made: Bench, rounds: int) -> tuple[float, float]:
    """Median milliseconds to the first byte, (direct, proxied), measured in turns."""
    direct, proxied = [], []
    for _ in range(rounds):
        direct.append(await _first_byte(made.direct))
        proxied.append(await _first_byte(made.proxied))
    return statistics.median(direct), statistics.median(proxied)


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with bench(Path(directory)) as made:
            direct, proxied = await _first_bytes(made, ROUNDS)
            versus("first byte through the proxy", proxied, "direct", direct, None, unit="ms")
            single("the same, added", proxied - direct, 2, unit="ms")
            direct = await event_latency(made.direct, 50, 100, 5)
            proxied = await event_latency(made.proxied, 50, 100, 5)
            versus("50 streams, an event every 5 ms: latency", proxied, "direct", direct, None, unit="ms")
            cases = (("30 MB request", 30 * MB, 0, 150), ("100 MB response", 2, 100 * MB, 20))
            for name, sent, received, most in cases:  # a request is read before it goes on
                took = []
                for session in (made.direct, made.proxied):
                    start = time.perf_counter()
                    async with made.memory() as sizes:
                        await drain(session, sent, f"bytes={received}")
                    took.append(time.perf_counter() - start)
                compare(f"{name} over HTTP", [took[1]], "direct", [took[0]], None)
                single("the same, growth of the proxy", growth(sizes), most, unit="MB")
                start = time.perf_counter()
                async with made.memory() as sizes:
                    await made.inband(sent, f"bytes={received}")
                compare(f"{name} over the link", [time.perf_counter() - start], "direct", [took[0]], None)
                single("the same, growth of proxy and worker", growth(sizes), most, unit="MB")
