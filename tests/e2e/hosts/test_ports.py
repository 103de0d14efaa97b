"""Ports of a host over a real sshd: a forward carries requests, and survives a lost connection."""

from __future__ import annotations

import asyncio
import socket
import urllib.request

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.network.relay import relay
from tests.support.person.laptop import STREAM

pytestmark = pytest.mark.visited


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


async def get(port: int, path: str) -> bytes:
    def read() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
            data: bytes = answer.read()
            return data

    return await asyncio.to_thread(read)


async def test_a_forward_carries_requests_at_once_and_behind_a_reconnect(host: Host) -> None:
    remote, local, page = free_port(), free_port(), bytes(range(256)) * 8192
    host.put("page.bin", page)
    serve = f"python3 -m http.server --bind 127.0.0.1 {remote} & while [ ! -e go ]; do sleep 0.05; done"
    host.model.add(uses("Bash", command=serve), {"text": "served"})
    async with relay(host.server.port) as between:
        words = ("-p", "serve", "--allowedTools", "Bash", *STREAM, "--forward", f"{local}:{remote}")
        async with host.laptop.start(host.ssh(*words, port=between.port), piped=False) as running:
            await until(lambda: listens(remote))
            many = await asyncio.gather(*(get(local, "page.bin") for _ in range(8)))
            assert many == [page] * 8
            between.cut()
            assert await get(local, "page.bin") == page, "the browser only waits"
            assert between.connections == 2
            host.put("go", b"")
            done = await running.done()
    assert (done.code, done.results[-1]["result"]) == (0, "served"), done.stderr
    assert not listens(local)
