"""The network of the benchmarks is as far away as it says, and real TCP runs over it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from benchmarks.kernel_network import kernel_network, why_not

RTT_S = 0.05


async def _fetch(address: str, port: int) -> tuple[bytes, float, float]:
    """Return what the server sends, and how long the handshake and the rest took."""
    start = time.monotonic()
    reader, writer = await asyncio.open_connection(address, port)
    connected = time.monotonic()
    data = await reader.read(-1)
    writer.close()
    return data, connected - start, time.monotonic() - connected


async def test_connections_take_round_trips_and_slow_start_and_lose_no_byte(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    data = os.urandom(100_000)  # 7 times the first window: at least 2 more round trips after the first flight

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    trace = tmp_path / "trace"
    async with (
        kernel_network(RTT_S, trace=trace) as network,
        await asyncio.start_server(serve, sock=network.listen()) as server,
    ):
        port = server.sockets[0].getsockname()[1]
        received, handshake_s, transfer_s = await _fetch(network.address, port)
        await network.change(0.0)
        again, _, _ = await _fetch(network.address, port)
    assert received == again == data
    assert handshake_s >= RTT_S
    assert transfer_s >= RTT_S * 2.5
    packets = [line.split() for line in trace.read_text().splitlines()]
    assert sum(int(size) for _, way, size in packets if way == "down") >= 2 * len(data)
