"""The proxy stays small and quick whatever passes through it (figures: benchmarks/proxy.py)."""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_bench import MB, Bench, bench, drain, event_latency, growth
from tests.support.proxy.proxy_client import calling, guard, pieces, request_head, session_proxy

from ccb.tunnel.providers.anthropic import AnthropicProvider, anthropic_client
from ccb.tunnel.providers.costs import BilledRequest
from ccb.tunnel.providers.model_router import ModelRouter
from ccb.tunnel.providers.provider import ProviderRequest, ProviderResponse
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.metering import Accounts, Reservation

MAX_GROWTH = 40  # MB, of 100 that pass

FIRST = {
    "claude-test": {"type": "ping"},
    "deepseek/deepseek-chat": {"choices": [{"index": 0, "delta": {"content": "word"}}]},
    "openai/gpt-5": {"type": "response.output_text.delta", "delta": "word", "output_index": 0, "content_index": 0},
}
"""The first event of an answer, in the language of each provider."""


@pytest.fixture
async def measured(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


@pytest.mark.parametrize("front", ["http", "inband"])
@pytest.mark.slow
@pytest.mark.quick_rows(1)
async def test_a_100_mb_response_does_not_grow_the_proxy(measured: Bench, front: str) -> None:
    async with measured.memory() as sizes:
        query = f"bytes={100 * MB}"
        got = await (drain(measured.proxied, 2, query) if front == "http" else measured.inband(2, query))
    assert got == 100 * MB
    assert growth(sizes) < MAX_GROWTH


@pytest.mark.slow
async def test_fifty_streams_do_not_grow_the_proxy_and_lose_nothing(measured: Bench) -> None:
    async with measured.memory() as sizes:
        await event_latency(measured.proxied, streams=50, events=20, gap=5)
    assert growth(sizes) < MAX_GROWTH


@pytest.mark.parametrize("model", list(FIRST))
async def test_a_request_takes_no_memory_while_its_answer_streams(model: str, tmp_path: Path) -> None:
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        async for _ in request.content.iter_any():
            pass
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"data: {json.dumps(FIRST[model])}\n\n".encode())
        await over.wait()
        return response

    message = {"role": "user", "content": "x" * (8 * MB)}
    body = json.dumps({"model": model, "max_tokens": 9, "stream": True, "messages": [message]}).encode()
    async with serving(answer) as url, session_proxy(url, tmp_path, model) as proxy:
        tracemalloc.start()
        try:
            async with calling(proxy, body) as response:
                assert await response.read()
                held, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            over.set()
    assert held < len(body) / 2 < peak


@pytest.mark.parametrize("text", ["x", "ccb1."], ids=["plain", "with-thinking-of-others"])
async def test_a_request_is_held_once_while_it_waits_for_its_budget(text: str) -> None:
    """And counted while it is held."""
    held: list[int] = []
    sent: list[int] = []

    class Taking(AnthropicProvider):
        @asynccontextmanager
        async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
            sent.append(len(request.body.take()))
            yield ProviderResponse(200, (), pieces(b""))

    class Watching(Accounts):
        async def reserve(self, request: BilledRequest) -> Reservation:
            await asyncio.sleep(0.1)  # until the thread that has read it has let it go
            held.append(tracemalloc.get_traced_memory()[0] - before)
            assert proxy._in_memory == len(body)
            return Reservation()

    provider = Taking(None, anthropic_client({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}))
    message = {"role": "user", "content": [{"type": "text", "text": "x" * (8 * MB)}, {"type": text}]}
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [message]}).encode()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        async with (
            AuthProxy(ModelRouter(provider, lambda name, api: None), accounts=Watching()) as proxy,
            proxy.call(request_head(body), _copied(body), nonce=guard()),
        ):
            assert proxy._in_memory == 0
    finally:
        tracemalloc.stop()
    assert held[0] < len(body) * 1.25
    assert len(sent) == 1
    assert sent[0] > 8 * MB


async def _copied(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), MB):
        yield bytes(memoryview(body)[start : start + MB])


_ONE_CALL = """
import asyncio, sys
from tests.support.proxy.proxy_client import calling, session_proxy
url, home, model = sys.argv[1:]
async def main():
    body = {"model": model, "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "x"}]}
    async with session_proxy(url, home, model) as proxy, calling(proxy, body) as response:
        assert response.status == 200 and await response.read()
asyncio.run(main())
print([name for name in ("anthropic", "openai", "httpx2") if name in sys.modules])
"""


async def test_a_model_call_loads_no_sdk(tmp_path: Path) -> None:
    """They take a second to load, and 60 MB."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        event = next(event for model, event in FIRST.items() if model.endswith(asked["model"]))
        return web.Response(text=f"data: {json.dumps(event)}\n\n", content_type="text/event-stream")

    async with serving(answer) as url:
        for model in FIRST:
            argv = (sys.executable, "-c", _ONE_CALL, url, str(tmp_path), model)
            process = await asyncio.create_subprocess_exec(*argv, stdout=PIPE, env={"PYTHONPATH": ":".join(sys.path)})
            out, _ = await process.communicate()
            assert out == b"[]\n", model
