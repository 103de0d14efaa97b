"""Memory and added latency of the auth proxy between processes, for the tests and benchmarks/proxy.py."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
from tests.support.proxy.proxy_client import NONCE

ROOT = Path(__file__).resolve().parents[3]
MB = 1_000_000
HEADERS = {"x-auth-nonce": NONCE}


async def _start(module: str, *args: str) -> tuple[Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *args, cwd=ROOT, stdin=PIPE, stdout=PIPE, env={"PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    )
    assert process.stdout is not None
    return process, (await process.stdout.readline()).decode().strip()


@dataclass
class Bench:
    """A client of the upstream (`direct`) and of the proxy in front of it (`proxied`)."""

    proxy: Process
    direct: aiohttp.ClientSession
    proxied: aiohttp.ClientSession

    async def inband(self, size: int, query: str) -> int:
        assert self.proxy.stdin is not None and self.proxy.stdout is not None
        self.proxy.stdin.write(f"{size} {query}\n".encode())
        return int((await self.proxy.stdout.readline()).decode().split()[1])

    @asynccontextmanager
    async def memory(self) -> AsyncIterator[list[int]]:
        """Notes the resident size of the proxy again and again while its context is open."""
        process = psutil.Process(self.proxy.pid)
        sizes = [process.memory_info().rss]

        async def watch() -> None:
            while True:
                sizes.append(process.memory_info().rss)
                await asyncio.sleep(0.002)

        watching = asyncio.create_task(watch())
        try:
            yield sizes
        finally:
            watching.cancel()


def growth(sizes: list[int]) -> float:
    """The largest size over the first, in MB."""
    return (max(sizes) - sizes[0]) / MB


@asynccontextmanager
async def bench(directory: Path) -> AsyncIterator[Bench]:
    upstream, url = await _start("tests.support.model.bulk_upstream")
    proxy, socket = await _start("tests.support.proxy.proxy_alone", str(directory), "claude-test", url)
    try:
        async with (
            aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as direct,
            aiohttp.ClientSession("http://model", connector=aiohttp.UnixConnector(socket, limit=0)) as proxied,
        ):
            made = Bench(proxy, direct, proxied)
            for session in (direct, proxied):
                await drain(session, 2, "events=3")
            await made.inband(1000, "events=3")
            yield made
    finally:
        for process in (proxy, upstream):
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()


async def drain(session: aiohttp.ClientSession, size: int, query: str) -> int:
    got = 0
    headers = {**HEADERS, "content-length": str(size)}
    async with session.post(f"/v1/messages?{query}", data=_chunks(size), headers=headers) as answer:
        answer.raise_for_status()
        async for piece in answer.content.iter_any():
            got += len(piece)
    return got


async def _chunks(size: int) -> AsyncIterator[bytes]:
    """A JSON object of `size` bytes, most of them blanks, that is never whole in memory here."""
    for start in range(0, size, 65536):
        yield (b"" if start else b"{}").ljust(min(65536, size - start))


async def event_latency(session: aiohttp.ClientSession, streams: int, events: int, gap: int) -> float:
    """Median milliseconds from an event's writing to its reading, over `streams` at once."""
    latencies: list[float] = []

    async def one() -> None:
        async with session.post(f"/v1/messages?events={events}&gap={gap}", data=b"{}", headers=HEADERS) as answer:
            latencies.extend(
                [
                    (time.monotonic_ns() - int(line[6:])) / MB
                    async for line in answer.content
                    if line.startswith(b"data: ")
                ]
            )

    await asyncio.gather(*(one() for _ in range(streams)))
    assert len(latencies) == streams * events
    return statistics.median(latencies)
