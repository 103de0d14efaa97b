"""The proxy stays small and quick whatever passes through it (figures: benchmarks/proxy.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.proxy.proxy_bench import MB, Bench, bench, drain, event_latency, first_bytes

MAX_GROWTH = 20  # MB


@pytest.fixture
async def measured(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


@pytest.mark.parametrize("front", ["http", "inband"])
@pytest.mark.slow
async def test_a_30_mb_request_and_a_100_mb_response_do_not_grow_the_proxy(measured: Bench, front: str) -> None:
    async with measured.memory() as memory:
        for sent, received in ((30 * MB, 0), (0, 100 * MB)):
            if front == "http":
                got = await drain(measured.proxied, sent, f"bytes={received}")
            else:
                got = await measured.inband(sent, f"bytes={received}")
            assert got == received
    assert memory.growth < MAX_GROWTH


@pytest.mark.slow
async def test_fifty_streams_do_not_grow_the_proxy_and_lose_nothing(measured: Bench) -> None:
    async with measured.memory() as memory:
        await event_latency(measured.proxied, streams=50, events=20, gap=5)
    assert memory.growth < MAX_GROWTH


@pytest.mark.slow
async def test_the_first_byte_is_hardly_later_than_without_the_proxy(measured: Bench) -> None:
    direct, proxied = await first_bytes(measured, 60)
    assert proxied - direct < 10  # ms; the promise is 2, measured on a quiet machine by the benchmark
