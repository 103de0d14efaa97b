"""The promises of the auth proxy: time to the first byte beside 50 streams, throughput against a bare aiohttp relay in
the same run, and memory with 100 streams. Proxy and relay run alone in their processes, without the test kit.

Run: .venv/bin/python -m benchmarks.proxy_budget
"""

from __future__ import annotations

import asyncio
import json
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
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_alone import NONCE

STREAMS, MEMORY_STREAMS = 50, 100
CALLS, ROUNDS = 150, 4  # the ways take turns: what else the machine does meets all of them
MB = 1_000_000
BODY = json.dumps({"model": "claude-test", "max_tokens": 10, "stream": True, "messages": []}).encode()
HEADERS = {"x-auth-nonce": NONCE, "content-type": "application/json"}
EVENTS = 50
BODIES_KB = (20, 200)
MOST_MB = {"claude-test": 60, "deepseek/deepseek-chat": 110, "openai/gpt-5": 110}


@asynccontextmanager
async def _process(module: str, *args: str) -> AsyncIterator[tuple[Process, str]]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *args, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


async def _first_byte(session: aiohttp.ClientSession) -> float:
    """Milliseconds from sending a call to the first byte of its body."""
    started = time.perf_counter()
    async with session.post("/v1/messages?events=2&gap=1", data=BODY, headers=HEADERS) as answer:
        answer.raise_for_status()
        await answer.content.readany()
        took = time.perf_counter() - started
        await answer.read()
    return took * 1000


async def _stream(session: aiohttp.ClientSession, over: asyncio.Event) -> None:
    while not over.is_set():
        async with session.post("/v1/messages?events=100&gap=20", data=BODY, headers=HEADERS) as answer:
            await answer.read()


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
    async with AsyncExitStack() as stack:
        _, url = await stack.enter_async_context(_process("tests.support.model.bulk_upstream"))
        _, front = await stack.enter_async_context(
            _process("tests.support.proxy.proxy_alone", str(directory), "claude-test", url)
        )
        bare = _process("tests.support.proxy.relay_alone", str(directory / "relay"), url)
        _, relay = await stack.enter_async_context(bare)
        ways = {"direct": await stack.enter_async_context(aiohttp.ClientSession(url))}
        for name, socket in (("relay", relay), ("proxy", front)):
            connector = aiohttp.UnixConnector(socket, limit=0)
            ways[name] = await stack.enter_async_context(aiohttp.ClientSession("http://model", connector=connector))
        took: dict[str, list[float]] = {name: [] for name in ways}
        for session in ways.values():
            for _ in range(20):
                await _first_byte(session)
        for name, session in [*ways.items()] * ROUNDS:  # each beside 50 streams on its own way
            over = asyncio.Event()
            streams = [asyncio.create_task(_stream(session, over)) for _ in range(STREAMS)]
            await _first_byte(session)
            took[name] += [await _first_byte(session) for _ in range(CALLS)]
            over.set()
            await asyncio.gather(*streams)
        shown = {name: _percentiles(values) for name, values in took.items()}
        for name, (middle, late) in shown.items():
            print(f"first byte beside {STREAMS} streams, {name}: p50 {middle:.2f} ms, p99 {late:.2f} ms")
        for name in ("relay", "proxy"):
            added = [got - bare for got, bare in zip(shown[name], shown["direct"], strict=True)]
            limits = (" (limit 1)", " (limit 5)") if name == "proxy" else ("", "")
            print(f"  added by the {name}: p50 {added[0]:.2f} ms{limits[0]}, p99 {added[1]:.2f} ms{limits[1]}")
        took = {name: [] for name in ways}
        for name, session in [*ways.items()] * 5:
            took[name].append(await _seconds(session))
        took = {name: sorted(values) for name, values in took.items()}
        rate = {name: 100 / values[len(values) // 2] for name, values in took.items()}
        print(
            f"throughput: direct {rate['direct']:.0f} MB/s, relay {rate['relay']:.0f}, proxy {rate['proxy']:.0f}; "
            f"ratio to the relay {rate['proxy'] / rate['relay']:.2f} (at least 0.9)"
        )


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
        _process("tests.support.proxy.proxy_alone", str(directory), model, url) as (it, socket),
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

        idle = await size()
        async with aiohttp.ClientSession("http://m", connector=aiohttp.UnixConnector(socket, limit=0)) as session:
            readers = [asyncio.create_task(read(session)) for _ in range(MEMORY_STREAMS)]
            async with asyncio.timeout(60):
                await enough.wait()
            now = await size()
            for each in readers:
                each.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*readers, return_exceptions=True)
    said = f"{now:.0f} MB, {idle:.0f} MB before the first (limit {MOST_MB[model]})"
    print(f"memory with {MEMORY_STREAMS} streams of {kb} KB, {model}: {said}", flush=True)


async def _main() -> None:
    for kb in BODIES_KB:
        for model in MOST_MB:
            with tempfile.TemporaryDirectory() as directory:
                await _memory(Path(directory), model, kb)
    with tempfile.TemporaryDirectory() as directory:
        await _speed(Path(directory))


if __name__ == "__main__":
    asyncio.run(_main())
