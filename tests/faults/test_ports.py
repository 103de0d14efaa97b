"""A download through a forward, in the middle of faults: it comes whole, or it fails. It is never shortened, doubled or
mixed up, even once the daemon that held its channel is gone."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.faults.play.host import kill_worker, left_by
from tests.faults.play.plan import DEAD_S
from tests.local.ports.test_port_forwards import free_port, listens
from tests.support.hosts.reached_host import Host
from tests.support.machine.waiting import until
from tests.support.network.relay import Fault, relay
from tests.support.person.laptop import STREAMS

pytestmark = pytest.mark.visited

PAGE = random.Random(32).randbytes(6_000_000)


@asynccontextmanager
async def page_server() -> AsyncIterator[int]:
    """A server of the host, which nobody of the session has started. It sends the page up to the end of the connection,
    and only that says that it was all."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            writer.write(PAGE)
            await writer.drain()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def downloaded(port: int) -> bytes | None:
    """The page, None if the connection broke off."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await reader.read(-1)
    except ConnectionError:
        return None
    finally:
        writer.close()


@pytest.mark.timeout(240)
@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("kind", ["reset", "kill daemon", "freeze", "close"])
async def test_a_download_in_the_middle_of_a_fault_comes_whole_or_fails(host: Host, kind: str) -> None:
    local = free_port()

    async def kill() -> None:
        kill_worker(host.user)

    async with page_server() as remote, relay(host.server.port) as between:
        words = ("-p", *STREAMS, "--forward", f"{local}:{remote}")
        async with host.start(*words, port=between.port) as running:
            await until(lambda: listens(local))
            act = kill if kind == "kill daemon" else None
            fault = Fault("call" if act else kind, between.down + 2_000_000, upward=False, seconds=DEAD_S, act=act)
            between.faults.append(fault)
            before, *others = await asyncio.gather(*(downloaded(local) for _ in range(3)))
            assert fault.happened
            if kind == "kill daemon":
                assert None in (before, *others) and {before, *others} <= {None, PAGE}
            else:
                assert [before, *others] == [PAGE] * 3
                assert between.connections == 2
            assert await downloaded(local) == PAGE
            await running.finish()
    assert await left_by(host.user) == []
