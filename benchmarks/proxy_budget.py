"""The promises of the auth proxy: time to the first byte beside 50 streams, throughput against a bare aiohttp relay in
the same run, and memory with 100 streams. Proxy and relay run alone in their processes, without the test kit.

The first byte is that of one more call while 50 streams go on, each with an event every 20 ms. The one who asks is a
plain socket that asks at random moments; it, the streams' reader and the provider share one core, for every way, and
the proxy or the relay has another: what the load itself costs is not the proxy's.

Run: .venv/bin/python -m benchmarks proxy_budget [speed] [realtime]
`realtime` (as root) takes the cores from whatever else the machine does.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
from aiohttp import web
from benchmarks.ratio import single, versus
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import NONCE

STREAMS, MEMORY_STREAMS = 50, 100
CALLS, WARM, ROUNDS = 200, 10, 6  # the ways take turns: what else the machine does meets all of them
ALL_CORES = os.sched_getaffinity(0)
LOAD_CORE, CORE = min(ALL_CORES), max(ALL_CORES)
MB = 1_000_000
MIN_MB_S = 50  # a model writes less than 1 MB of events in a second
BODY = json.dumps({"model": "claude-test", "max_tokens": 10, "stream": True, "messages": []}).encode()
HEADERS = {"x-auth-nonce": NONCE, "content-type": "application/json"}
EVENTS = 50
BODIES_KB = (20, 200)
MAX_MB = {"claude-test": 60, "deepseek/deepseek-chat": 110, "openai/gpt-5": 110}


@asynccontextmanager
async def process(module: str, *args: str, core: int | None = None) -> AsyncIterator[tuple[Process, str]]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *args, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None and process.stdout is not None
    if core is not None:
        os.sched_setaffinity(process.pid, {core})
    try:
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


class _Asker:
    """Asks over one connection, and waits as a blocking program does: no loop of its own adds to the time."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.socket(socket.AF_INET if host else socket.AF_UNIX)
        self._socket.connect((host, int(port)) if host else address)
        lines = [
            f"{name}: {value}" for name, value in {"host": "model", **HEADERS, "content-length": len(BODY)}.items()
        ]
        head = "\r\n".join(["POST /v1/messages?events=2&gap=1 HTTP/1.1", *lines, "", ""])
        self._request = head.encode() + BODY

    def first_byte(self) -> float:
        """Milliseconds from sending a call to the first byte of its body."""
        started = time.perf_counter()
        self._socket.sendall(self._request)
        text = b""
        while not text.partition(b"\r\n\r\n")[2]:
            text += self._socket.recv(1 << 16) or sys.exit("the connection was closed")
        took = time.perf_counter() - started
        if not text.startswith(b"HTTP/1.1 200"):
            sys.exit(text[:300].decode())
        while not text.endswith(b"0\r\n\r\n"):
            text += self._socket.recv(1 << 16) or sys.exit("the connection was closed")
        return took * 1000

    def close(self) -> None:
        self._socket.close()


async def _first_bytes(address: str) -> list[float]:
    """Ask CALLS times while the streams go on at the same address."""
    async with process("benchmarks.load_alone", address, str(STREAMS), NONCE, core=LOAD_CORE):
        asker = _Asker(address)
        try:
            took = []
            for _ in range(CALLS + WARM):
                time.sleep(random.uniform(0, 0.02))
                took.append(asker.first_byte())
            return took[WARM:]
        finally:
            asker.close()


async def _seconds(session: aiohttp.ClientSession) -> float:
    """Seconds for 100 MB."""
    started = time.perf_counter()
    async with session.post(f"/v1/messages?bytes={100 * MB}", data=BODY, headers=HEADERS) as answer:
        async for _ in answer.content.iter_any():
            pass
    return time.perf_counter() - started


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=100)
    return cuts[49], cuts[98]


async def _speed(directory: Path) -> None:
    os.sched_setaffinity(0, {LOAD_CORE})
    async with AsyncExitStack() as stack:
        upstream = process("tests.support.model.bulk_upstream", core=LOAD_CORE)
        _, url = await stack.enter_async_context(upstream)
        bare = process("benchmarks.relay_alone", str(directory / "relay"), url, core=CORE)
        _, relay = await stack.enter_async_context(bare)
        alone = process("tests.support.proxy.proxy_alone", str(directory), "claude-test", url, core=CORE)
        _, front = await stack.enter_async_context(alone)
        addresses = {"direct": url.removeprefix("http://"), "relay": relay, "proxy": front}
        first: dict[str, list[float]] = {name: [] for name in addresses}
        for name, address in [*addresses.items()] * ROUNDS:
            first[name] += await _first_bytes(address)
        shown = {name: _percentiles(values) for name, values in first.items()}
        for at, (cut, limit) in enumerate((("p50", 1.0), ("p99", 5.0))):
            ours, bare_one = shown["proxy"][at], shown["relay"][at]
            versus(f"first byte beside {STREAMS} streams, {cut}", ours, "relay", bare_one, None, unit="ms")
            single("the same, added to the relay", ours - bare_one, limit, unit="ms")
        os.sched_setaffinity(0, ALL_CORES)
        ways = {"direct": await stack.enter_async_context(aiohttp.ClientSession(url))}
        for name, path in (("relay", relay), ("proxy", front)):
            connector = aiohttp.UnixConnector(path, limit=0)
            ways[name] = await stack.enter_async_context(aiohttp.ClientSession("http://model", connector=connector))
        took: dict[str, list[float]] = {name: [] for name in ways}
        for name, session in [*ways.items()] * 5:
            took[name].append(await _seconds(session))
        took = {name: sorted(values) for name, values in took.items()}
        rate = {name: 100 / values[len(values) // 2] for name, values in took.items()}
        versus("throughput", rate["proxy"], "relay", rate["relay"], None, unit="MB/s")
        single("the same, alone", rate["proxy"], MIN_MB_S, unit="MB/s", least=True)


def _piece(model: str) -> bytes:
    """An event of a stream that goes on."""
    if model.startswith("openai"):
        event = {"type": "response.output_text.delta", "delta": "words ", "output_index": 0, "content_index": 0}
        return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
    if "/" in model:
        delta = {"choices": [{"index": 0, "delta": {"content": "words "}}], "id": "c", "model": "m"}
        return f"data: {json.dumps(delta)}\n\n".encode()
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "words "}}
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


async def _memory(directory: Path, model: str, kb: int) -> None:
    """100 streams with a conversation of `kb` KB each, open at the same time; then the resident size."""
    arrived, enough = 0, asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(EVENTS):
            await response.write(_piece(model))
        await asyncio.Event().wait()
        return response

    messages = [{"role": "user", "content": "x" * kb * 1000}]
    body = json.dumps({"model": model, "max_tokens": 10, "stream": True, "messages": messages}).encode()
    async with (
        serving(answer) as url,
        process("tests.support.proxy.proxy_alone", str(directory), model, url) as (it, socket),
    ):

        async def read(session: aiohttp.ClientSession) -> None:
            nonlocal arrived
            text = bytearray()
            async with session.post("/v1/messages", data=body, headers=HEADERS) as given:
                while text.count(b"words ") < EVENTS:
                    text += await given.content.readany()
                arrived += 1
                if arrived == MEMORY_STREAMS:
                    enough.set()
                await given.content.readany()  # more does not come

        async def size() -> float:
            assert it.stdin is not None and it.stdout is not None
            it.stdin.write(b"\n")
            return int((await it.stdout.readline()).split()[0]) * 1024 / MB

        async with aiohttp.ClientSession("http://m", connector=aiohttp.UnixConnector(socket, limit=0)) as session:
            readers = [asyncio.create_task(read(session)) for _ in range(MEMORY_STREAMS)]
            async with asyncio.timeout(60):
                await enough.wait()
            now = await size()
            for each in readers:
                each.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*readers, return_exceptions=True)
    single(f"{MEMORY_STREAMS} streams of {kb} KB, {model}", now, MAX_MB[model], unit="MB")


async def main() -> None:
    if "realtime" in sys.argv:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    for kb in () if "speed" in sys.argv else BODIES_KB:
        for model in MAX_MB:
            with tempfile.TemporaryDirectory() as directory:
                await _memory(Path(directory), model, kb)
    with tempfile.TemporaryDirectory() as directory:
        await _speed(Path(directory))
